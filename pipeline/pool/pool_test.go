package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/erm"
	"fmp/pipeline/federate"
	"fmp/pipeline/honesty"
	"fmp/pipeline/meta"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

const dx, classes = 6, 3

// pixels are grey images of 2x3 pixels of classes in turn, each around a picture of its own.
func pixels(r *rand.Rand, n, classes int) (pix []uint8, labels []int) {
	pix, labels = make([]uint8, n*dx), make([]int, n)
	for i := range n {
		labels[i] = i % classes
		for j := range dx {
			v := 80.0
			if j%3 == labels[i] {
				v = 160
			}
			pix[i*dx+j] = uint8(min(max(v+25*r.NormFloat64(), 0), 255))
		}
	}
	return pix, labels
}

// world is a conjugate predictor behind an extractor that gives the pixels as they are, in a file,
// and its client graphs.
type world struct {
	predictor string
	eng       engine.Engine
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pix, labels := pixels(rng.New(1, "corpus"), 600, classes)
	return newWorldOf(t, pix, labels, classes, "left", "middle", "right")
}

// newWorldOf is a world with a corpus of c classes.
func newWorldOf(t *testing.T, pix []uint8, labels []int, c int, names ...string) *world {
	t.Helper()
	bank := must.Get(task.NewBank(featuresOf(pix), dx, labels, c))(t)
	m := must.Get(meta.UntrainedConjugate(bank))(t)
	f := must.Get(models.ReadManifest(m))(t)
	f.Extractor, f.Classes = "x", names
	must.Do(t, f.Write(m))
	w := &world{predictor: filepath.Join(t.TempDir(), "conjugate.onnx")}
	must.Do(t, serde.Save(w.predictor, m))
	w.eng = must.Get(pure.New(engine.Options{Threads: 1}))(t)
	return w
}

// client is the client graph of uploads of class means, of the softened features or of coordinates,
// as fmp fuse makes it.
func (w *world) client(t *testing.T, phi bool) (*onnx.Model, models.Manifest) {
	t.Helper()
	m, _ := must.Get2(models.Load(w.predictor))(t)
	return clientGraph(t, must.Get(models.ConjugateEmbedding(m, phi))(t))
}

// momentsGraph is the client graph of moments.
func momentsGraph(t *testing.T) (*onnx.Model, models.Manifest) {
	t.Helper()
	c := models.MomentsConfig{Dx: dx, C: classes, Bytes: 1 << 16}
	return clientGraph(t, must.Get(models.MomentsEmbedding(c))(t))
}

// clientGraph is the client graph of an embedding behind an extractor that gives the pixels.
func clientGraph(t *testing.T, e *onnx.Model) (*onnx.Model, models.Manifest) {
	t.Helper()
	ef := must.Get(models.ReadManifest(e))(t)
	b := build.New("extractor")
	b.Output("h", b.Reshape(b.Input("image", onnx.Float32, "n", 1, 2, 3), -1, dx))
	x := must.Get(b.Model())(t)
	g := must.Get(models.ClientGraph(x, models.Manifest{Digest: "x"}, e, ef,
		models.Preprocessing{Height: 2, Width: 3, Channels: 1}))(t)
	f := must.Get(models.ReadManifest(g))(t)
	f.Digest = must.Get(models.Digest(g))(t)
	return g, f
}

// eval runs a model whose image input is called images.
func (w *world) eval(t *testing.T, m *onnx.Model, pix []uint8,
	labels []int) map[string]*onnx.Tensor {
	t.Helper()
	s := must.Get(w.eng.Load(m))(t)
	feeds := map[string]*onnx.Tensor{"images": onnx.NewTensor(pix, len(pix)/dx, 2, 3, 1)}
	if labels != nil {
		y := make([]int64, len(labels))
		for i, v := range labels {
			y[i] = int64(v)
		}
		feeds["labels"] = onnx.NewTensor(y, len(y))
	}
	return must.Get(engine.Eval(s, feeds))(t)
}

// uploads are those of clients of the given sizes, the first of which lacks the last class.
func (w *world) uploads(t *testing.T, g *onnx.Model, f models.Manifest, sizes ...int) []Upload {
	t.Helper()
	var out []Upload
	for i, n := range sizes {
		held := classes
		if i == 0 {
			held--
		}
		pix, labels := pixels(rng.New(1, "client", i), n, held)
		u := w.means(t, g, f, i, pix, labels)
		if u.Points.N != held {
			t.Fatalf("client %d sends %d points for %d classes", i, u.Points.N, held)
		}
		out = append(out, u)
	}
	return out
}

// means is a client's upload of the class means of images.
func (w *world) means(t *testing.T, g *onnx.Model, f models.Manifest, client int, pix []uint8,
	labels []int) Upload {
	t.Helper()
	r := w.eval(t, g, pix, labels)
	return sent(t, &federate.Upload{Client: fmt.Sprint("client ", client), Model: f.Digest,
		N: len(labels), Points: (&point.Set{N: f.S, Dx: f.PointWidth(), C: f.C, Z: r["points"].F32(),
			W: r["masses"].F32()}).Held()})
}

// posterior is that of a round of uploads.
func (w *world) posterior(t *testing.T, us []Upload, g *onnx.Model, f models.Manifest,
	o Options) (*Round, *posterior.Result) {
	t.Helper()
	r, p, err := played(t.Context(), w.eng, us, g, f, o)
	must.Do(t, err)
	return r, p
}

// played is a round of uploads with its posterior.
func played(ctx context.Context, eng engine.Engine, us []Upload, g *onnx.Model, f models.Manifest,
	o Options) (*Round, *posterior.Result, error) {
	r, err := New(us, g, f, o)
	if err != nil {
		return nil, nil, err
	}
	p, err := r.Posterior(ctx, eng)
	return r, p, err
}

// sent is an upload as a server reads it.
func sent(t *testing.T, u *federate.Upload) Upload {
	t.Helper()
	return Upload{Upload: must.Get(federate.Decode(must.Get(u.Encode())(t),
		federate.Expect{Model: u.Model}))(t)}
}

// elsewhere does parts, the last one first, each by the sampling that by gives, and then changes
// its piece.
func elsewhere(by func(i int) *Sampling,
	then func(*Piece)) func(context.Context, []SampleRange) ([]*Piece, error) {
	return func(ctx context.Context, parts []SampleRange) ([]*Piece, error) {
		out := make([]*Piece, len(parts))
		for i := len(parts) - 1; i >= 0; i-- {
			var err error
			if out[i], err = by(i).Do(ctx, parts[i]); err != nil {
				return nil, err
			}
			then(out[i])
		}
		return out, nil
	}
}

// right counts the images whose most probable class is theirs.
func right(probabilities []float32, labels []int) (n int) {
	classes := len(probabilities) / len(labels)
	for i, y := range labels {
		if row := probabilities[i*classes:][:classes]; row[y] == slices.Max(row) {
			n++
		}
	}
	return n
}

// TestClassMeans: three clients' class means, of features or of coordinates, become the same
// classifier, which knows images that nobody had; it takes images, and its heads lie on the
// predictor's coordinates.
func TestClassMeans(t *testing.T) {
	w := newWorld(t)
	pix, labels := pixels(rng.New(1, "test"), 300, classes)
	var first []float32
	for _, phi := range []bool{true, false} {
		g, f := w.client(t, phi)
		if !f.ClassMeans || (f.K == 0) != phi {
			t.Fatalf("manifest %+v", f)
		}
		r, p := w.posterior(t, w.uploads(t, g, f, 12, 15, 9), g, f,
			Options{Predictor: w.predictor, Seed: 3, Samples: 25})
		m := must.Get(r.Classifier(t.Context(), p, false, true, ""))(t)
		mf := must.Get(models.ReadManifest(m))(t)
		o, err := models.ReadOrigin(mf)
		if err != nil || o.Method != "FMP" || o.L2 != 0 || len(o.Clients) != 3 ||
			mf.S != 25 || mf.Dx != dx ||
			strings.Join(mf.Classes, " ") != "left middle right" {
			t.Errorf("origin %+v, manifest %+v, %v", o, mf, err)
		}
		out := w.eval(t, m, pix, nil)
		got := out["probabilities"].F32()
		if n := right(got, labels); n < 270 {
			t.Errorf("right on %d of 300", n)
		}
		if out["samples"].Len() != 300*25*classes {
			t.Errorf("samples %v", out["samples"])
		}
		if first == nil {
			first = got
		}
		for i, v := range got {
			if math.Abs(float64(v-first[i])) > 1e-4 {
				t.Fatalf("probability %d is %v from coordinates and %v from features", i, v, first[i])
			}
		}
	}
}

// TestRefused: a round that cannot be is refused, and so is a setting that cannot act on it.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	g, f := w.client(t, true)
	us := w.uploads(t, g, f, 6, 7)
	points := f
	points.ClassMeans = false
	other := f
	other.Extractor = "y"
	narrow := f
	narrow.K = 1
	for _, c := range []struct {
		want   string
		ups    []Upload
		client models.Manifest
		o      Options
	}{
		{"no uploads", nil, f, Options{}},
		{"takes its moments from a corpus", us, f, Options{Predictor: "untrained"}},
		{"which reads class means", us, points, Options{}},
		{"goes with extractor", us, other, Options{}},
		{"1 coordinates", us, narrow, Options{}},
		{"fmp train conjugate", us, f, Options{Predictor: "default"}},
		{"erm.l2", us, f, Options{L2: 5}},
		{"predictor.fresh", us, f, Options{Fresh: 10}},
		{"corpus.upload", us, f, Options{CorpusMoments: &discriminant.Client{}}},
		{"none of the 2 uploads", us, f, Options{For: "nobody"}},
		{"open predictor", us, f, Options{For: "client 1"}}, // nothing tells of its shift
	} {
		c.o.Predictor = cmp.Or(c.o.Predictor, w.predictor)
		must.Fail(New(c.ups, g, c.client, c.o))(t, c.want, c.want)
	}
}

// TestUnfit: uploads that no images give are told from others, and the others make a round. In open
// scope thousands of points about a true class mean would pass for the scatter of many clients:
// judged honest, they brought a round of five to chance.
func TestUnfit(t *testing.T) {
	w := newWorld(t)
	far := func(set *point.Set) {
		row := set.Features(1)
		for j := range row {
			row[j] *= 10
		}
	}
	for name, c := range map[string]struct {
		phi   bool
		spoil func(u *federate.Upload)
		want  string
	}{
		"far out": {true, func(u *federate.Upload) { far(u.Points) }, "points[1] is 6"},
		"far out in coordinates": {false, func(u *federate.Upload) {
			for range 3 {
				far(u.Points)
			}
		}, "as far out as the features of any image"},
		"a class twice": {true, func(u *federate.Upload) {
			copy(u.Points.Row(2)[dx:], u.Points.Row(1)[dx:])
		}, "points[2] is of class 1"},
		"splinters": {true, func(u *federate.Upload) { u.Points.W[2] = 0.25 }, "mass 0.25"},
		"no class": {true, func(u *federate.Upload) {
			copy(u.Points.Row(0)[dx:], []float32{0.5, 0.5, 0})
		}, "several classes"},
		"calibration point": {true, func(u *federate.Upload) {
			u.Calibration = &point.Set{N: 2, Dx: dx, C: classes, Z: slices.Clone(u.Points.Z[:2*dx]),
				Y: []int32{0, 1}, W: make([]float32, 2)}
			far(u.Calibration)
		}, "calibration: points[1]"},
	} {
		g, f := w.client(t, c.phi)
		us := w.uploads(t, g, f, 9, 12, 12)
		o := Options{Predictor: w.predictor}
		must.Get(New(us, g, f, o))(t)
		c.spoil(us[1].Upload)
		_, err := New(us, g, f, o)
		var unfit *UnfitError
		if !errors.As(err, &unfit) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), `"client 1"`) ||
			len(unfit.Errors) != 1 {
			t.Errorf("%s: %v; want one that says %q", name, err, c.want)
			continue
		}
		if r, err := New(unfit.Left, g, f, o); err != nil || len(r.Uploads) != 2 ||
			r.Uploads[1].Client != "client 2" {
			t.Errorf("%s: without it: %v", name, err)
		}
	}
}

// TestParts: a sampling done in parts by several, in any order, is sample for sample the one that
// is done by one; with honesty judged by chains, with trust, and with a predictor that draws
// points.
func TestParts(t *testing.T) {
	w := newWorld(t)
	g, f := w.client(t, true)
	sizes := make([]int, 12)
	for i := range sizes {
		sizes[i] = 6 + i
	}
	means := w.uploads(t, g, f, sizes...)
	points := f
	points.ClassMeans = false
	for name, c := range map[string]struct {
		f models.Manifest
		o Options
	}{
		"honesty":        {f, Options{Predictor: w.predictor, Samples: 25}},
		"trust":          {f, Options{Predictor: w.predictor, Samples: 25, Trust: true}},
		"points of ISAB": {points, Options{Predictor: "untrained", Samples: 25, Fresh: 10}},
	} {
		c.o.Seed = 4
		sampling := func() *Sampling {
			r := must.Get(New(means, g, c.f, c.o))(t)
			s := must.Get(r.Sampling(w.eng))(t)
			t.Cleanup(s.Close)
			return s
		}
		whole := must.Get(sampling().Posterior(t.Context(), nil))(t)
		workers, jobs := []*Sampling{sampling(), sampling()}, 0
		parts := must.Get(sampling().Posterior(t.Context(),
			elsewhere(func(i int) *Sampling { return workers[i%2] }, func(*Piece) { jobs++ })))(t)
		if want := 3 + map[bool]int{true: chainParts}[name == "honesty"]; jobs != want {
			t.Errorf("%s: %d jobs; want %d", name, jobs, want)
		}
		if d := gocmp.Diff(whole.Ensembles, parts.Ensembles); d != "" || len(whole.Ensembles[0]) != 25 {
			t.Errorf("%s: %s", name, d)
		}
		if s := workers[0]; s.points != nil { // each sample has its own noise, whatever its part
			all := must.Get(s.points.Uploads(t.Context(), s.sets,
				posterior.Fit{L2: s.round.L2, Tolerance: 1e-6}, posterior.SampleRange{}))(t)
			if d := gocmp.Diff(all.Ensembles, whole.Ensembles, cmpopts.EquateApprox(0, 1e-3)); d != "" {
				t.Errorf("%s: samples in one piece (-) and in parts (+): %s", name, d)
			}
		}
		if whole.Judgement != nil && (!slices.Equal(whole.Judgement.Honest, parts.Judgement.Honest) ||
			!slices.Equal(whole.Judgement.Counted, parts.Judgement.Counted)) {
			t.Errorf("%s: honest %v and %v, counted %v and %v", name, whole.Judgement.Honest,
				parts.Judgement.Honest, whole.Judgement.Counted, parts.Judgement.Counted)
		}
	}
}

// TestCounted: the round says how many images each client claims and how many count; a claim of a
// thousand times the images counts a few times what the others hold at most, and with trust all of
// it does.
func TestCounted(t *testing.T) {
	w := newWorld(t)
	g, f := w.client(t, true)
	uploads := w.uploads(t, g, f, 12, 12, 12, 12, 12)
	for i := range uploads[2].Points.W {
		uploads[2].Points.W[i] *= 1000
	}
	for _, trust := range []bool{false, true} {
		_, p := w.posterior(t, uploads, g, f,
			Options{Predictor: w.predictor, Seed: 3, Samples: 10, Trust: trust})
		if j := p.Judgement; trust != (j == nil) {
			t.Fatalf("trust %v: judgement %+v", trust, j)
		} else if trust {
			continue
		} else if j.Claimed[2] != 12000 || j.Counted[2] < 11.99 || j.Counted[2] > 4*12.01 ||
			j.Claimed[0] != 12 ||
			math.Abs(j.Counted[0]-12) > 1e-4 {
			t.Errorf("claimed %v, counted %v", j.Claimed, j.Counted)
		}
	}
}

// TestImages: a client's images are one number, as its upload states it: those that are kept for
// sets are in no mass, and are images too.
func TestImages(t *testing.T) {
	at := func(client string, u *federate.Upload) Upload {
		u.Client, u.N = client, 50
		return Upload{Upload: u}
	}
	r := &Round{Uploads: []Upload{at("none", &federate.Upload{}),
		at("means", &federate.Upload{Calibration: &point.Set{N: 10}}),
		at("moments", &federate.Upload{Within: &moments.Within{Labels: make([]int, 10)}}),
		at("liar", &federate.Upload{Calibration: &point.Set{N: 10}})}}
	j := &posterior.Judgement{Claimed: []float64{50, 50, 55, 50}, Counted: []float64{50, 50, 55, 20}}
	claimed, counted := r.Images(j)
	if !slices.Equal(claimed, []float64{50, 60, 60, 60}) ||
		!slices.Equal(counted, []float64{50, 60, 60, 30}) {
		t.Errorf("claimed %v, counted %v", claimed, counted)
	}
	if j.Claimed[1] != 50 || j.Counted[3] != 20 {
		t.Errorf("the judgement was changed: %+v", j)
	}
}

// TestHostileParts: parts that are not of the round, and pieces that are not what was asked for,
// are errors.
func TestHostileParts(t *testing.T) {
	w := newWorld(t)
	g, f := w.client(t, true)
	r := must.Get(New(w.uploads(t, g, f, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16), g, f,
		Options{Predictor: w.predictor, Samples: 5}))(t)
	s := must.Get(r.Sampling(w.eng))(t)
	defer s.Close()
	for want, p := range map[string]SampleRange{
		"samples 0 to 6; there are 5": {To: 6},
		"samples 3 to 3":              {From: 3, To: 3},
		"chains 0 to 99":              {Chains: true, To: 99},
		"who is honest: false":        {To: 5},
		"of 2 clients": {To: 5,
			States: &honesty.States{Honest: [][]bool{{true, true}}, P: []float64{1}}},
	} {
		must.Fail(s.Do(t.Context(), p))(t, want)
	}
	for want, spoil := range map[string]func(p *Piece){
		"the parts hold 4 samples of 5": func(p *Piece) { p.Heads = p.Heads[:min(4, len(p.Heads))] },
		"head 0 is 7 x 3": func(p *Piece) {
			p.Heads = slices.Repeat(posterior.Ensemble{erm.NewTheta(7, classes)}, len(p.Heads))
		},
		"the parts hold 0 proposals": func(p *Piece) { p.Proposed = nil },
		"a state of 1 clients": func(p *Piece) {
			p.Proposed = slices.Repeat([][]bool{{true}}, len(p.Proposed))
		},
	} {
		must.Fail(s.Posterior(t.Context(), elsewhere(func(int) *Sampling { return s }, spoil)))(t, want)
	}
}

// strange are images of classes of another kind than those of pixels: bright at one end, in the
// middle of a row, or nowhere.
func strange(r *rand.Rand, n int) (pix []uint8, labels []int) {
	bright := [][dx]float64{{200, 200, 40, 40, 40, 200}, {40, 200, 40, 200, 200, 40},
		{60, 60, 60, 60, 60, 60}}
	pix, labels = make([]uint8, n*dx), make([]int, n)
	for i := range n {
		labels[i] = i % len(bright)
		for j := range dx {
			pix[i*dx+j] = uint8(min(max(bright[labels[i]][j]+20*r.NormFloat64(), 0), 255))
		}
	}
	return pix, labels
}

// TestOpen: uploads of the corpus's classes are read in closed form, others in the open one, as
// their novelty says or as is asked for; the open form needs no conjugate predictor, its classifier
// knows images that nobody had and has intervals around what it says.
func TestOpen(t *testing.T) {
	w := newWorld(t)
	file := openFile(t, 1, 0)
	g, f := w.client(t, true)
	known := w.uploads(t, g, f, 12, 15, 9)
	var fresh []Upload
	for i := range 3 {
		pix, labels := strange(rng.New(1, "strange", i), 30)
		fresh = append(fresh, w.means(t, g, f, i, pix, labels))
	}
	test, truth := strange(rng.New(1, "strange test"), 300)
	for _, c := range []struct {
		name    string
		uploads []Upload
		o       Options
		want    bool
	}{
		{"classes of the corpus", known, Options{Predictor: w.predictor, Open: file}, false},
		{"new classes", fresh, Options{Predictor: w.predictor, Open: file}, true},
		{"no conjugate predictor", fresh, Options{Predictor: file}, true},
		{"closed", fresh, Options{Predictor: w.predictor, Open: file, Scope: "closed"}, false},
		{"open", known, Options{Predictor: w.predictor, Open: file, Scope: "open"}, true},
		{"every client trusted", fresh, Options{Predictor: file, Trust: true}, true},
	} {
		c.o.Seed, c.o.Samples = 3, 25
		r, p := w.posterior(t, c.uploads, g, f, c.o)
		if is, novelty := Open(p); is != c.want {
			t.Errorf("%s: open is %v, novelty %v", c.name, is, novelty)
		}
		if !c.want || &c.uploads[0] != &fresh[0] {
			continue
		}
		m := must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
		out := w.eval(t, m, test, nil)
		got, low, high := out["probabilities"].F32(), out["low"].F32(), out["high"].F32()
		around := 0
		for i, y := range truth {
			if at := i*classes + y; low[at] <= got[at] && got[at] <= high[at] && low[at] < high[at] {
				around++
			}
		}
		if n := right(got, truth); n < 290 || around < 270 {
			t.Errorf("%s: right on %d of 300, %d intervals around what is said", c.name, n, around)
		}
		o := must.Get(models.ReadManifest(m))(t)
		if from, err := models.ReadOrigin(o); err != nil || from.Predictor != r.openFrom.Digest {
			t.Errorf("%s: origin %+v, %v", c.name, from, err)
		}
	}
	strangeFile := openFile(t, 1.2, 0.1) // of another corpus
	narrow := f
	narrow.K = 1
	for _, c := range []struct {
		want   string
		client models.Manifest
		o      Options
	}{
		{"soften features about different centres", f, Options{Predictor: strangeFile}},
		{"both open predictors", f, Options{Predictor: file, Open: file}},
		{"there is no open predictor", f, Options{Predictor: w.predictor, Open: "none", Scope: "open"}},
		{"reads class means of all features", narrow, Options{Predictor: file}},
		{"fmp train conjugate", f, Options{Predictor: file, Scope: "closed"}},
		{"open.model wants", f, Options{Predictor: w.predictor, Open: w.predictor}},
	} {
		must.Fail(New(fresh, g, c.client, c.o))(t, c.want)
	}
}

// TestByName: the corpus counts in every round whose classes it has by name, all of them or some,
// in any order. In a round with a class that it lacks it does not, and the class is named. Where it
// has few images of the round's classes these do not count, and the round is read all the same.
func TestByName(t *testing.T) {
	w := newWorld(t)
	m, _ := must.Get2(models.Load(w.predictor))(t)
	pix, labels := pixels(rng.New(1, "held"), 600, classes)
	features := featuresOf(pix)
	must.Do(t, serde.Save(w.predictor, must.Get(models.WithImages(m, features, labels))(t)))
	file := openFile(t, 1, 0)
	open, _ := must.Get2(models.Load(file))(t)
	all := []string{"left", "middle", "right"}
	few := filepath.Join(t.TempDir(), "few.onnx") // all images of one class, every twentieth of the others
	var some []float32
	var of []int
	for i, y := range labels {
		if y == 1 || i%20 == 0 {
			some, of = append(some, features[i*dx:(i+1)*dx]...), append(of, y)
		}
	}
	must.Do(t, serde.Save(few, must.Get(models.WithImages(m, some, of))(t)))
	for _, c := range []struct {
		names           []string
		unknown, corpus string
	}{{all, "", w.predictor}, {[]string{"right", "left", "middle"}, "", w.predictor},
		{[]string{"right", "middle"}, "", w.predictor}, {[]string{"right", "middle"}, "", few},
		{[]string{"right", "left"}, "", few}, {[]string{"left", "up"}, "up", w.predictor},
		{[]string{"up", "left", "down"}, "up down", w.predictor}} {
		e := must.Get(models.OpenEmbedding(open, len(c.names)))(t)
		f := must.Get(models.ReadManifest(e))(t)
		f.Classes = c.names
		must.Do(t, f.Write(e))
		g, f := clientGraph(t, e)
		images := func(stream string, n int) (some []uint8, truth []int) {
			pix, labels := pixels(rng.New(1, stream), n, classes)
			for i, y := range labels { // a class that is not named is one of the others
				if at := slices.Index(c.names, all[y]); at >= 0 || c.unknown != "" {
					some, truth = append(some, pix[i*dx:(i+1)*dx]...), append(truth, max(at, 0))
				}
			}
			return some, truth
		}
		var uploads []Upload
		for i := range 3 {
			pix, labels := images(fmt.Sprint("client ", i), 30)
			uploads = append(uploads, w.means(t, g, f, i, pix, labels))
		}
		o := Options{Predictor: c.corpus, Open: file, Seed: 3, Samples: 25}
		if len(c.names) != classes && c.unknown != "" {
			must.Fail(New(uploads, g, f, o))(t, "classes 2", c.names, "a predictor of three classes, by name")
			continue
		}
		r, p := w.posterior(t, uploads, g, f, o)
		share, counts := p.Diagnostics[posterior.DiagnosticNamed]
		want := c.unknown == "" && (c.corpus != few || slices.Contains(c.names, "middle"))
		if got := strings.Join(r.Unknown(), " "); got != c.unknown || r.Named() != (c.unknown == "") ||
			counts != want || counts && share < 0.9 {
			t.Errorf("%v: the corpus lacks %q, and %.2f of it counts: %v", c.names, got, share, counts)
		}
		if !r.Named() {
			continue
		}
		model := must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
		pix, truth := images("test", 300)
		if n := right(w.eval(t, model, pix, nil)["probabilities"].F32(), truth); n < len(truth)*95/100 {
			t.Errorf("%v: right on %d of %d", c.names, n, len(truth))
		}
	}
}
