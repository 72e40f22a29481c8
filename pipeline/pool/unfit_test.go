package pool

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/federate"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

// someone returns an upload that no honest client makes: of any sizes, counts, means, scatter, curve
// and calibration points that a message can hold, some of them those of an honest client.
func someone(r *rand.Rand, honest *federate.Upload) *federate.Upload {
	u := *honest
	u.Client, u.N, u.Curve, u.Calibration = "someone", 0, nil, nil
	k, c := honest.Points.Dx, honest.Points.C
	if r.IntN(8) == 0 {
		k = 1 + r.IntN(9)
	}
	if r.IntN(8) == 0 {
		c = 2 + r.IntN(5)
	}
	size := math.Pow(10, r.Float64()*8-6) // of a coordinate
	if honest.Within != nil {
		size = min(size, 1/math.Sqrt(float64(k)))
	}
	count := math.Pow(10, r.Float64()*8)
	set := &point.Set{Dx: k, C: c}
	for y := range c {
		if y > 0 && r.IntN(3) == 0 {
			continue
		}
		set.N, set.Y, set.W = set.N+1, append(set.Y, int32(y)), append(set.W, float32(math.Round(count)))
		for range k {
			set.Z = append(set.Z, float32(size*(2*r.Float64()-1)))
		}
		if r.IntN(4) == 0 {
			count = 1
		}
	}
	if r.IntN(6) == 0 { // all alike
		for i := range set.Z {
			set.Z[i] = set.Z[i%k]
		}
	}
	if r.IntN(4) == 0 && k == honest.Points.Dx && c == honest.Points.C {
		honest := honest.Points.Compact()
		set = &point.Set{N: honest.N, Dx: k, C: c, Z: slices.Clone(honest.Z), Y: slices.Clone(honest.Indices()),
			W: slices.Clone(honest.W)}
		if honest.Y == nil {
			set.Y, set.Z = nil, slices.Clone(honest.Z)
		}
	}
	u.Points = set
	u.N = int(set.Mass())
	if honest.Points.Indices() == nil && r.IntN(4) > 0 { // of several classes each
		set.Y, set.Z = nil, nil
		for range set.N * (k + c) {
			set.Z = append(set.Z, float32(size*(2*r.Float64()-1)))
		}
		for i := range set.N * r.IntN(2) { // shares
			at, sum := set.Z[i*(k+c)+k:][:c], float32(0)
			for y := range at {
				at[y] = r.Float32()
				sum += at[y]
			}
			for y := range at {
				at[y] /= sum
			}
		}
	}
	if honest.Within == nil && r.IntN(6) > 0 {
		return &u
	}
	w := &moments.Within{K: k, Dof: r.IntN(max(u.N-set.N, 0) + 1)}
	if r.IntN(4) == 0 {
		w.Dof = min(w.Dof, 1)
	}
	spread := math.Pow(10, r.Float64()*8-8)
	switch {
	case w.Dof == 0:
	case r.IntN(2) == 0:
		w.Rank = 1 + r.IntN(min(k, w.Dof))
		for range w.Rank * k {
			w.Data = append(w.Data, float32(spread*r.NormFloat64()))
		}
	default:
		for i := range k {
			for j := i; j < k; j++ {
				v := spread * r.NormFloat64() // of no images
				if i == j {
					v = spread * r.Float64()
				}
				w.Data = append(w.Data, float32(v))
			}
		}
	}
	u.Within = w
	if r.IntN(2) == 0 {
		u.Curve = &moments.ClientCurve{}
		for i := range u.Curve.Curve {
			u.Curve.Curve[i] = -float64(r.IntN(min(u.N, moments.MaxCurveImages)*32)) * float64(r.IntN(2))
		}
	}
	return &u
}

// kind is an honest round that others join, and its options.
type kind struct {
	name  string
	round []Upload
	graph *onnx.Model
	f     models.Manifest
	o     Options
}

// pointsRound is a round of clients that send the paper's points, of an embedding that is not trained.
func (w *world) pointsRound(t *testing.T, sizes ...int) kind {
	t.Helper()
	named := func(m *onnx.Model) {
		f := must.Get(models.ReadManifest(m))(t)
		f.Extractor, f.Classes = "x", []string{"left", "middle", "right"}
		must.Do(t, f.Write(m))
	}
	e := must.Get(models.NewEmbedding(models.EmbeddingConfig{Dx: dx, C: classes, Size: 4, Dim: 12}, 1))(t)
	p := must.Get(models.NewPredictor(models.PredictorConfig{Dx: dx, C: classes, Dim: 12, Fresh: 20}, 1))(t)
	named(e)
	named(p)
	path := filepath.Join(t.TempDir(), "predictor.onnx")
	must.Do(t, serde.Save(path, p))
	g, f := clientGraph(t, e)
	var us []Upload
	for i, n := range sizes {
		pix, labels := pixels(rng.New(1, "client", i), n, classes)
		r := w.eval(t, g, pix, labels)
		us = append(us, sent(t, &federate.Upload{Client: fmt.Sprint("client ", i), Model: f.Digest, N: n,
			Points: &point.Set{N: f.S, Dx: dx, C: classes, Z: r["points"].F32(), W: r["masses"].F32()}}))
	}
	return kind{"points", us, g, f, Options{Predictor: path, Samples: 4}}
}

// kinds returns rounds of class means, of moments and of the paper's points.
func (w *world) kinds(t *testing.T) []kind {
	t.Helper()
	means, f := w.client(t, true)
	us, graph, of := w.momentsRound(t, 4, 1)
	for i := range us {
		us[i].N = int(us[i].Points.Mass())
	}
	return []kind{
		{"class means", w.uploads(t, means, f, 9, 12, 12, 30), means, f, Options{Predictor: w.predictor, Samples: 4}},
		{"moments", us, graph, of, Options{Samples: 4}},
		{"trusted moments", us, graph, of, Options{Samples: 4, Trust: true}},
		w.pointsRound(t, 12, 15, 30, 20),
	}
}

// classifies fails unless a round gives a classifier whose outputs are probabilities.
func (w *world) classifies(t *testing.T, r *Round, name string, of any) {
	t.Helper()
	p, err := r.Posterior(t.Context(), w.eng)
	if err != nil {
		t.Errorf("%s: %v of %+v", name, err, of)
		return
	}
	pix, _ := pixels(rng.New(1, "test"), 30, classes)
	m := must.Get(r.Classifier(t.Context(), p, false, false, "fmp pool"))(t)
	for _, v := range w.eval(t, m, pix, nil)["probabilities"].F32() {
		if !(v >= 0 && v <= 1) {
			t.Errorf("%s: a probability of %v", name, v)
			return
		}
	}
}

// TestSomeone: whatever one client sends, it is refused by itself, or the others' round goes on.
func TestSomeone(t *testing.T) {
	w := newWorld(t)
	for _, kind := range w.kinds(t) {
		refused, went := 0, 0
		for seed := range uint64(100) {
			bad := someone(rand.New(rand.NewPCG(seed, 3)), kind.round[1].Upload)
			data, err := bad.Encode()
			if err != nil {
				continue
			}
			var messages [][]byte
			for i, u := range append([]Upload{{Upload: bad}}, kind.round...) {
				if i > 0 {
					data = must.Get(u.Encode())(t)
				}
				messages = append(messages, data)
			}
			uploads, errs := DecodeUploads(messages, federate.Expect{})
			r, err := New(uploads, kind.graph, kind.f, kind.o)
			var unfit *UnfitError
			switch {
			case len(errs) == 1 && err == nil, errors.As(err, &unfit) && len(unfit.Errors) == 1 && len(errs) == 0:
				if said := fmt.Sprint(errs, err); !strings.Contains(said, "upload 0") && !strings.Contains(said, "someone") {
					t.Errorf("%s, seed %d: %v, %v; want the first upload refused", kind.name, seed, errs, err)
				}
				refused++
				continue
			case err != nil || len(errs) > 0:
				t.Fatalf("%s, seed %d: %v, %v", kind.name, seed, errs, err)
			}
			w.classifies(t, r, fmt.Sprintf("%s, seed %d", kind.name, seed), bad)
			went++
		}
		t.Logf("%s: %d refused, %d in a round", kind.name, refused, went)
		if refused < 10 || went < 10 {
			t.Errorf("%s: %d refused and %d in a round; want some of both", kind.name, refused, went)
		}
	}
}

// TestColluders: whatever some clients send together, those that are not refused leave the others a
// classifier, of single uploads and of their sums.
func TestColluders(t *testing.T) {
	w := newWorld(t)
	for _, kind := range w.kinds(t) {
		seeds, joined := uint64(100), 0
		if kind.name == "class means" {
			seeds = 20 // which take longer
		}
		for seed := range seeds {
			bad := colluders(rand.New(rand.NewPCG(seed, 5)), kind.round, func(us []Upload) error {
				_, err := New(us, kind.graph, kind.f, kind.o)
				return err
			})
			joined += len(bad)
			us, name := slices.Concat(kind.round, bad), fmt.Sprintf("%s, seed %d", kind.name, seed)
			w.classifies(t, must.Get(New(us, kind.graph, kind.f, kind.o))(t), name, len(us))
			if kind.name == "moments" {
				sums, _ := must.Get2(Update(nil, us, nil))(t)
				w.classifies(t, must.Get(NewState(sums, kind.graph, kind.f, kind.o))(t), name+", summed", len(us))
			}
		}
		if joined < int(seeds) {
			t.Errorf("%s: %d colluders in %d rounds; want more", kind.name, joined, seeds)
		}
	}
}

// colluders returns up to twelve uploads of someone's, each of which a round with an honest one takes.
func colluders(at *rand.Rand, honest []Upload, taken func([]Upload) error) (us []Upload) {
	for j := range 1 + at.IntN(12) {
		bad := someone(at, honest[1].Upload)
		bad.Client = fmt.Sprint("someone ", j)
		if _, err := bad.Encode(); err != nil {
			continue
		}
		u := Upload{Upload: bad, Digest: fmt.Sprintf("%064x", j)}
		if taken([]Upload{honest[0], u}) == nil {
			us = append(us, u)
		}
	}
	return us
}

// TestOtherKinds: uploads of other sizes or parts than the client graph makes are refused before any
// work, all of them too.
func TestOtherKinds(t *testing.T) {
	w := newWorld(t)
	means, f := w.client(t, true)
	us, graph, of := w.momentsRound(t, 3, 1)
	points := f
	points.ClassMeans, points.S = false, 2
	for want, change := range map[string]func(*federate.Upload){
		"those of the client graph are 2": func(*federate.Upload) {},
		"calibration points or a curve": func(u *federate.Upload) {
			u.Calibration = u.Points
		},
	} {
		u := *us[0].Upload
		u.Within = nil
		change(&u)
		must.Fail((&Round{Client: points}).checkKind(&u))(t, want)
	}
	for name, c := range map[string]struct {
		o      Options
		f      models.Manifest
		change func(*federate.Upload)
	}{
		"those of the client graph of 6 and 3": {Options{}, of, func(u *federate.Upload) {
			u.Points = &point.Set{N: 1, Dx: 5, C: classes, Z: make([]float32, 5), Y: []int32{1}, W: []float32{4}}
		}},
		"it holds no moments":   {Options{}, of, func(u *federate.Upload) { u.Within = nil }},
		"no covariance":         {Options{Trust: true}, of, func(u *federate.Upload) { u.Within.Data[1] = 9 }},
		"the client graph asks": {Options{Predictor: w.predictor}, f, nil},
	} {
		g := graph
		if c.f.Bytes == 0 {
			g = means
		}
		changed := slices.Clone(us)
		for i, u := range us {
			own := *u.Upload
			within := *u.Within
			within.Data, own.Within = slices.Clone(within.Data), &within
			if changed[i].Upload = &own; c.change != nil {
				c.change(&own)
			}
		}
		var unfit *UnfitError
		if _, err := New(changed, g, c.f, c.o); !errors.As(err, &unfit) || len(unfit.Errors) != 3 ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%v; want three errors of %q", err, name)
		}
	}
}
