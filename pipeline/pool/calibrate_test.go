package pool

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	"fmp/pipeline/client"
	"fmp/pipeline/conformal"
	"fmp/pipeline/federate"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// drawings is a source of drawn digits.
type drawings struct {
	pix    []uint8
	labels []uint8
	size   int
}

func (s *drawings) Len() int     { return len(s.labels) }
func (s *drawings) Close() error { return nil }

func (s *drawings) Next(_ context.Context, dst []uint8) (imagefile.Item, error) {
	copy(dst, s.pix[:s.size])
	item := imagefile.Item{Label: int(s.labels[0])}
	item.Digest = sha256.Sum256(s.pix[:s.size])
	s.pix, s.labels = s.pix[s.size:], s.labels[1:]
	return item, nil
}

// uploads returns the uploads of clients of 100 images each, with some of them as calibration
// points; bad clients name the next class for each.
func (o *owners) calibrated(t *testing.T, clients, calibrate, bad int) []Upload {
	t.Helper()
	const n = 100
	size := o.drawn.Side * o.drawn.Side
	c := must.Get(client.New(o.graph, o.client, 1))(t)
	var us []Upload
	for m := range clients {
		labels := make([]uint8, n)
		for i := range labels {
			labels[i] = uint8(o.drawn.Train.Labels[m*n+i])
			if m < bad {
				labels[i] = (labels[i] + 1) % 10
			}
		}
		name := fmt.Sprint("owner ", m)
		u, _ := must.Get2(c.Upload(t.Context(), &drawings{o.drawn.Train.Pix[m*n*size:], labels, size},
			client.Options{Calibrate: calibrate, Secret: &client.Secret{byte(m)}}, name))(t)
		us = append(us, sent(t, u))
	}
	return us
}

// held returns the share of test images whose set holds their class, and the mean size of a set.
func (o *owners) held(t *testing.T, m *onnx.Model) (share, size float64) {
	t.Helper()
	sets := o.eval(t, m, map[string]*onnx.Tensor{"images": o.images(o.drawn.Test.Pix)},
		"set")["set"].Data.([]bool)
	labels := o.drawn.Test.Labels
	for i, y := range labels {
		for c, in := range sets[i*10 : (i+1)*10] {
			if in {
				size++
				if c == int(y) {
					share++
				}
			}
		}
	}
	return share / float64(len(labels)), size / float64(len(labels))
}

// TestSetsByClass: sets by class and for named shares of classes hold as stated on the images that
// they are for, from one round; either is refused where points are too few, both together always,
// and the other score has the same guarantee.
func TestSetsByClass(t *testing.T) {
	o := newOwners(t, 5)
	us := o.calibrated(t, 6, 20, 0)
	shares := make([]float64, 10)
	for _, c := range []struct {
		Options
		want string // error; "": none
	}{
		{Options{Sets: Sets{Level: 0.8, ByClass: true}}, ""},
		{Options{Sets: Sets{Level: 0.8, Proportions: "3=0.75,8=0.25"}}, ""},
		{Options{Sets: Sets{Level: 0.9, Score: conformal.Adaptive}}, ""},
		{Options{Sets: Sets{Level: 0.99, ByClass: true}}, "by class wants at least 137"},
		{Options{Sets: Sets{Level: 0.99, Proportions: "3=1"}}, "for the given shares"},
		{Options{Sets: Sets{Proportions: "ten=1"}}, "none of the classes"},
		{Options{Sets: Sets{Proportions: "3=1", ByClass: true}}, "leave the shares out"},
		{Options{Sets: Sets{Score: "best"}}, "allowed are"},
	} {
		c.Seed, c.Threads, c.Samples = 1, 1, 30
		r, p, err := played(t.Context(), o.eng, us, o.graph, o.client, c.Options)
		if c.want != "" {
			must.Fail(err)(t, c.want)
			continue
		}
		must.Do(t, err)
		if p.Sets == nil || p.Sets.ByClass != c.ByClass ||
			(p.Sets.Proportions != nil) != (c.Proportions != "") {
			t.Fatalf("%+v: sets %+v", c.Options, p.Sets)
		}
		m := must.Get(r.Classifier(t.Context(), p, false, false, ""))(t)
		clear(shares)
		for y := range shares {
			shares[y] = 0.1
		}
		if c.Proportions != "" {
			clear(shares)
			shares[3], shares[8] = 0.75, 0.25
		}
		sets := o.eval(t, m, map[string]*onnx.Tensor{"images": o.images(o.drawn.Test.Pix)},
			"set")["set"].Data.([]bool)
		var held, of [10]float64
		for i, y := range o.drawn.Test.Labels {
			if of[y]++; sets[i*10+int(y)] {
				held[y]++
			}
		}
		var mean float64
		for y, w := range shares {
			mean += w * held[y] / of[y]
			// some 16 points: a deviation of .1, and as much on 40 images
			if c.ByClass && held[y]/of[y] < 0.55 {
				t.Errorf("class %d: %v of %v images are held", y, held[y], of[y])
			}
		}
		t.Logf("%+v: %.3f held", c.Options, mean)
		if mean < c.Level-0.04 {
			t.Errorf("%+v: %.3f are held", c.Options, mean)
		}
	}
}

// TestChoice: in open scope half of the calibration points choose temperature and penalty and the
// others are for sets; all choose where no sets are asked for or where all would not prove them,
// and none where half would not. Points that name classes at random raise the temperature, those of
// clients that lie count nothing, and samples that are made in parts elsewhere are the same.
func TestChoice(t *testing.T) {
	o := newOwners(t, 3)
	pooled := func(us []Upload, change Options, away bool) *posterior.Result {
		t.Helper()
		change.Seed, change.Threads, change.Samples, change.Scope = 1, 1, 30, posterior.ScopeOpen
		s := o.sampling(t, us, change)
		var do func(context.Context, []SampleRange) ([]*Piece, error)
		if away {
			do = elsewhere(func(int) *Sampling { return o.sampling(t, us, change) }, func(*Piece) {})
		}
		return must.Get(s.Posterior(t.Context(), do))(t)
	}
	for _, c := range []struct {
		calibrate, bad int
		level          float64
		choose, sets   float64
	}{{10, 0, 0, 30, 30}, {10, 1, 0, 25, 25}, {10, 0, -1, 60, 0}, {3, 0, 0, 0, 18}, {2, 0, 0, 12, 0},
		{0, 0, 0, 0, 0}} {
		p := pooled(o.calibrated(t, 6, c.calibrate, c.bad), Options{Sets: Sets{Level: c.level}}, false)
		sets := 0.0
		if p.Sets != nil {
			sets = float64(p.Sets.Images)
		}
		if p.Diagnostics["open"] != 1 || p.Diagnostics[posterior.DiagnosticPoints] != c.choose ||
			sets != c.sets {
			t.Errorf("%+v: diagnostics %v, %v points for sets", c, p.Diagnostics, sets)
		}
		if told := p.NoSets != ""; told != (c.calibrate > 0 && c.level >= 0 && sets == 0) {
			t.Errorf("%+v: no sets as %q", c, p.NoSets)
		}
	}
	us := o.calibrated(t, 6, 10, 0)
	here, there := pooled(us, Options{}, false), pooled(us, Options{}, true)
	r := must.Get(New(us, o.graph, o.client, Options{Scope: posterior.ScopeOpen, Threads: 1}))(t)
	m := must.Get(r.Classifier(t.Context(), here, false, false, ""))(t)
	if share, size := o.held(t, m); share < .85 || size > 3 {
		t.Errorf("sets hold %.3f, mean size %.2f", share, size)
	}
	if fmt.Sprint(here.Ensembles, here.Diagnostics) != fmt.Sprint(there.Ensembles, there.Diagnostics) {
		t.Errorf("samples made elsewhere differ: %v, %v", here.Diagnostics, there.Diagnostics)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for _, u := range us {
		for i := range u.Calibration.Y {
			u.Calibration.Y[i] = int32(random.IntN(10))
		}
	}
	hot := pooled(us, Options{Sets: Sets{Level: -1}}, false)
	const name = posterior.DiagnosticTemperature
	if hot.Diagnostics[name] < 2 || here.Diagnostics[name] > 1.5 || norm(hot) > norm(here)/1.3 {
		t.Errorf(
			"temperature %v and heads of size %v by classes at random, %v and %v by those of the points",
			hot.Diagnostics[name], norm(hot), here.Diagnostics[name], norm(here))
	}
}

// norm returns the size of the heads of a posterior.
func norm(p *posterior.Result) (sum float64) {
	for _, h := range p.Ensembles[0] {
		sum += floats.Norm(h.W, 2)
	}
	return sum
}

// sampling returns a round that is ready to be sampled.
func (o *owners) sampling(t *testing.T, us []Upload, change Options) *Sampling {
	t.Helper()
	r := must.Get(New(us, o.graph, o.client, change))(t)
	s := must.Get(r.Sampling(o.eng))(t)
	t.Cleanup(s.Close)
	return s
}

// TestChoiceOfOne: a client that sends ten times as many calibration points as the others, with
// classes at random, moves the temperature no further than one that sends as many as they do.
func TestChoiceOfOne(t *testing.T) {
	o := newOwners(t, 3)
	temperature := func(points int) (at, choose float64) {
		us := o.calibrated(t, 6, 10, 0)
		random, c := rand.New(rand.NewPCG(1, 1)), us[0].Calibration
		lies := &point.Set{N: points, Dx: c.Dx, C: c.C, W: make([]float32, points)}
		for i := range points {
			lies.Z = append(lies.Z, c.Features(i%c.N)...)
			lies.Y = append(lies.Y, int32(random.IntN(10)))
		}
		us[0].Calibration = lies
		p := must.Get(o.sampling(t, us,
			Options{Seed: 1, Threads: 1, Samples: 30, Scope: posterior.ScopeOpen,
				Sets: Sets{Level: -1}}).Posterior(t.Context(), nil))(t)
		return p.Diagnostics[posterior.DiagnosticTemperature], p.Diagnostics[posterior.DiagnosticPoints]
	}
	few, n := temperature(10)
	many, m := temperature(100)
	if n != 60 || m != 60 || math.Abs(math.Log(many/few)) > 0.5 {
		t.Errorf("temperature %v by %v points, and %v by %v where one client sends 100",
			few, n, many, m)
	}
}

// pointed is the uploads of clients of class means, each with calibration points, those of the
// first bad clients under the next class's name.
func (w *world) pointed(t *testing.T, clients, each, bad int) (*Round, error) {
	t.Helper()
	g, f := w.client(t, false)
	us := w.uploads(t, g, f, slices.Repeat([]int{12}, clients)...)
	for m := range us {
		pix, labels := w.clientImages(0, uint64(m), each)
		u := *us[m].Upload
		u.Calibration = w.calibration(t, g, f, pix, labels)
		for i, y := range u.Calibration.Y {
			if m < bad {
				u.Calibration.Y[i] = (y + 1) % classes
			}
		}
		us[m].Upload = &u
	}
	return New(us, g, f, Options{Predictor: w.predictor, Seed: 3, Samples: 25})
}

// TestFalsePoints: the points of clients that contradict the others' count nowhere, and the clients
// are named; sets are about those of a round without these clients' points. Where none is to be
// survived, they fill the sets.
func TestFalsePoints(t *testing.T) {
	w := newWorld(t)
	threshold := func(r *Round) (float32, []string, []int) {
		t.Helper()
		p := must.Get(r.Posterior(t.Context(), w.eng))(t)
		if p.Sets == nil {
			t.Fatal("no sets")
		}
		return p.Sets.Thresholds[0], p.Sets.LeftOut, p.Sets.False
	}
	made := func(bad int) *Round {
		t.Helper()
		return must.Get(w.pointed(t, 10, 10, bad))(t)
	}
	honest, left, bad := threshold(made(0))
	if left != nil || !slices.Equal(bad, []int{2}) {
		t.Errorf("honest clients: %q are left out, and %d may be false; want none, and 2", left, bad)
	}
	r := made(2)
	got, left, bad := threshold(r)
	slices.Sort(left)
	if want := []string{r.Uploads[0].Client, r.Uploads[1].Client}; !slices.Equal(left, want) ||
		!slices.Equal(bad, []int{0}) {
		t.Errorf("%q are left out, and %d may be false; want %q, and 0", left, bad, want)
	}
	if got < honest {
		t.Errorf("two false clients take the threshold from %v to %v", honest, got)
	}
	r.falseShare = 0
	if all, left, bad := threshold(r); left != nil || bad != nil || all > honest/3 {
		t.Errorf("where none is survived: threshold %v, %q are left out, %v may be false; with honest "+
			"clients %v", all, left, bad, honest)
	}
}

// TestEvenPoints: a client's points count up to the lower median of the clients', and ten at least.
func TestEvenPoints(t *testing.T) {
	r := &Round{Options: Options{Seed: 1}}
	var points []calibrationPoint
	for m, n := range []int{3, 12, 14, 100, 100} {
		r.Uploads = append(r.Uploads, Upload{Upload: &federate.Upload{Client: fmt.Sprint(m)}})
		for i := range n {
			points = append(points, calibrationPoint{class: i, client: m})
		}
	}
	counted := func() (out [5]int) {
		for _, p := range r.even(points) {
			out[p.client]++
		}
		return out
	}
	if got := counted(); got != [5]int{3, 12, 14, 14, 14} {
		t.Errorf("points that count: %v", got)
	}
	points = points[:15+3]
	if got := counted(); got != [5]int{3, 10, 3} {
		t.Errorf("points that count of few clients: %v", got)
	}
}

// TestSoftened: calibration points give their feature rows back, behind a client graph whose
// parameters are stored in half precision too; one without them is refused.
func TestSoftened(t *testing.T) {
	g, f := newWorld(t).client(t, true)
	half, bare := onnx.Clone(g), onnx.Clone(g)
	if n, _ := pass.StoreHalf(half, dx); n == 0 {
		t.Fatal("nothing is stored in half precision")
	}
	delete(bare.Graph.Initializers, models.ConjCentre)
	points := []calibrationPoint{{row: []float32{.1, -.1, .05, 0, .02, -.04}}}
	soften := func(g *onnx.Model) ([]float32, error) {
		return (&Round{Graph: g, Client: f}).softened(points)
	}
	want, got := must.Get(soften(g))(t), must.Get(soften(half))(t)
	for j, v := range got {
		if math.Abs(float64(v-want[j])) > 1e-2*(1+math.Abs(float64(v))) {
			t.Errorf("feature %d is %v; in single precision it is %v", j, v, want[j])
		}
	}
	must.Fail(soften(bare))(t, "give the graph of fmp fuse")
}
