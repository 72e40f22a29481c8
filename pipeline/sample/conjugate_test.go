package sample

import (
	"context"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/meta"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/task"
)

// conjugateWorld is an untrained conjugate predictor of Gaussian classes and clients of them, the
// last class held by nobody.
func conjugateWorld(t *testing.T) (*Conjugate, []*point.Set, *task.Bank) {
	t.Helper()
	w := newWorld(8, 4, 1)
	k := w.untrained(t, 800)
	bank := w.draw(t, "clients", 30, w.c-1)
	var clients []*point.Set
	for i := range 3 {
		clients = append(clients, bank.Points(allRows(30)[10*i:][:10], nil))
	}
	return k, clients, w.draw(t, "test", 400, w.c)
}

// world draws rows of Gaussian classes.
type world struct {
	dx, c int
	means []float32
}

func newWorld(dx, c int, apart float32) *world {
	w := &world{dx, c, make([]float32, c*dx)}
	rng.Normal(rng.New(1, "means"), w.means)
	for i := range w.means {
		w.means[i] *= apart
	}
	return w
}

// draw returns n rows of the first classes in turn.
func (w *world) draw(t *testing.T, name string, n, classes int) *task.Bank {
	t.Helper()
	x, y := make([]float32, n*w.dx), make([]int, n)
	rng.Normal(rng.New(1, name), x)
	for i := range y {
		y[i] = i % classes
		for j := range w.dx {
			x[i*w.dx+j] += w.means[y[i]*w.dx+j]
		}
	}
	return must.Get(task.NewBank(x, w.dx, y, w.c))(t)
}

// untrained returns the conjugate predictor that training starts from, of a corpus of n rows.
func (w *world) untrained(t *testing.T, n int) *Conjugate {
	t.Helper()
	values := must.Get(meta.StartConjugate(w.draw(t, "corpus", n, w.c), 0, 0))(t)
	m := must.Get(models.NewConjugate(models.ConjugateConfig{Dx: w.dx, C: w.c,
		K: values[models.ConjOrigin].Len()}, values))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	t.Cleanup(func() { eng.Close() })
	k := must.Get(NewConjugate(eng, m))(t)
	t.Cleanup(func() { k.Close() })
	return k
}

// latents are those of some samples.
func latents(k *Conjugate, samples int) []float32 {
	out := make([]float32, samples*k.LatentSize())
	rng.Normal(rng.New(1, "latent"), out)
	return out
}

// uploaded returns the union of the clients' uploads.
func uploaded(t *testing.T, k *Conjugate, clients []*point.Set) *point.Set {
	t.Helper()
	uploads := must.Get(k.Compress(t.Context(), clients))(t)
	return must.Get(point.Pool(uploads...))(t)
}

// drawn returns the finite samples whose limit is the closed form: for each latent, 2 f points of
// the heads' coordinates with labels and weights, from noise (samples x f x k numbers from N(0,
// 1)), and the pooled uploads as points there.
func drawn(t *testing.T, c *Conjugate, seen *point.Set, latent, noise []float32,
	samples int) (context *point.Set, sets []*point.Set) {
	t.Helper()
	k, classes := c.config.K, c.config.C
	f := len(noise) / (samples * k)
	in := must.Get(c.withLatent(seen, latent, samples))(t)
	in["noise"] = onnx.NewTensor(noise, samples, f, k)
	part := &lazy{engine: c.engine, model: must.Get(models.ConjugatePart(c.model, models.ConjDrawn,
		models.ConjDrawnWeights, models.ConjContext, models.ConjContextMasses))(t)}
	defer part.Close()
	out := must.Get(part.eval(in))(t)
	set := func(points, weights string, i, n int) *point.Set {
		s := point.New(n, k, classes)
		copy(s.Z, out[points].F32()[i*n*(k+classes):])
		copy(s.W, out[weights].F32()[i*n:])
		return s
	}
	for i := range samples {
		sets = append(sets, set(models.ConjDrawn, models.ConjDrawnWeights, i, 2*f))
	}
	return set(models.ConjContext, models.ConjContextMasses, 0, classes).Held(), sets
}

// TestClosedFormIsTheLimitOfTheFit: heads fitted to pooled points and many antithetic draws predict
// what the closed form predicts, the nearer the more there are.
func TestClosedFormIsTheLimitOfTheFit(t *testing.T) {
	ctx := context.Background()
	k, clients, test := conjugateWorld(t)
	seen := uploaded(t, k, clients)
	const samples = 4
	latent := latents(k, samples)
	heads := must.Get(k.Heads(ctx, seen, latent, samples))(t)
	rows := must.Get(k.Map(ctx, test.Features))(t)
	// distance is the mean total variation between the predictions of the closed form's heads and
	// of fitted ones.
	distance := func(f int) float64 {
		noise := make([]float32, samples*f*k.config.K)
		rng.Normal(rng.New(1, "noise", f), noise)
		pooled, sets := drawn(t, k, seen, latent, noise, samples)
		var sum float64
		for i, set := range sets {
			problem := must.Get(erm.FromSets(0.3, pooled, set))(t)
			fit := must.Get(erm.Solve(ctx, problem, erm.Options{Threads: 1}))(t)
			a := must.Get(metric.Predict(ctx, heads[i:i+1], rows, 1))(t)
			b := must.Get(metric.Predict(ctx, []erm.Theta{fit.Theta}, rows, 1))(t)
			for j := range a.P {
				sum += math.Abs(a.P[j]-b.P[j]) / 2
			}
		}
		return sum / float64(samples*test.Len())
	}
	few, many := distance(500), distance(20000)
	t.Logf("total variation to the closed form: %.4f with 1,000 draws, %.4f with 40,000", few, many)
	if many > 0.005 || few < 2*many {
		t.Errorf("total variation to the closed form is %.4f with 1,000 draws and %.4f with 40,000; "+
			"want it to vanish", few, many)
	}
}

// TestConjugateUploads: a client uploads the classes that it holds; means of w and of phi say the
// same.
func TestConjugateUploads(t *testing.T) {
	ctx := context.Background()
	k, clients, _ := conjugateWorld(t)
	uploads := must.Get(k.Compress(ctx, clients))(t)
	for i, u := range uploads {
		if u.N != 3 || u.Dx != k.config.K || u.Mass() != 10 {
			t.Errorf("upload %d: %d points of %d numbers with mass %v; want 3 of %d with mass 10",
				i, u.N, u.Dx, u.Mass(), k.config.K)
		}
	}
	phi := point.New(1, k.config.Dx, k.config.C)
	rng.Normal(rng.New(1, "phi"), phi.Z[:k.config.Dx])
	phi.Z[k.config.Dx] = 1
	a := must.Get(k.Mean(ctx, phi))(t)
	b := must.Get(k.Mean(ctx, k.project(phi)))(t)
	near(t, "means of w and of phi", b.W, a.W, 1e-9)
	for _, c := range []struct {
		want string
		run  func() error
	}{
		{"5 numbers", func() error { _, err := k.Mean(ctx, point.New(1, 5, 4)); return err }},
		{"latent of 3", func() error { _, err := k.Heads(ctx, phi, make([]float32, 3), 1); return err }},
		{"no uploaded", func() error { _, err := k.Mean(ctx, &point.Set{}); return err }},
		{"5 feature values", func() error { _, err := k.Map(ctx, make([]float32, 5)); return err }},
	} {
		must.Fail(c.run())(t, c.want)
	}
}

// TestConjugateIntervals: the graph for one round gives the ends that the predictor gives, whatever
// the rows beside a row; they are wider for a higher level, and hold most of what infinite data
// would say.
func TestConjugateIntervals(t *testing.T) {
	ctx := context.Background()
	k, clients, test := conjugateWorld(t)
	seen := uploaded(t, k, clients)
	const samples = 30
	latent, uniform := latents(k, samples), make([]float32, samples)
	for i, j := range rng.New(1, "strata").Perm(samples) {
		uniform[i] = (float32(j) + 0.5) / samples
	}
	low, high := must.Get2(k.Intervals(ctx, Drawn{Seen: seen, Latent: latent, Uniform: uniform},
		test.Features, 0.9))(t)
	graph := must.Get(k.IntervalGraph(ctx, Drawn{Seen: seen, Latent: latent, Uniform: uniform}, 0.9))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	defer eng.Close()
	s := must.Get(eng.Load(graph))(t)
	defer s.Close()
	const from, n = 190, 20 // over the end of a chunk
	out := must.Get(engine.Eval(s,
		map[string]*onnx.Tensor{
			"features": onnx.NewTensor(test.Features[from*test.Dx:(from+n)*test.Dx], n, test.Dx)}))(t)
	for name, ends := range map[string][]float64{"low": low, "high": high} {
		near(t, name+" of the graph", dense.As[float64](out[name].F32()),
			ends[from*test.C:(from+n)*test.C], 1e-5)
	}
	wideLow, wideHigh := must.Get2(k.Intervals(ctx, Drawn{Seen: seen, Latent: latent, Uniform: uniform},
		test.Features, 0.99))(t)
	whole := must.Get(k.Compress(ctx, []*point.Set{test.Points(allRows(test.Len()), nil)}))(t)
	limit := must.Get(k.IntervalLimit(ctx, whole[0]))(t)
	rows := must.Get(k.Map(ctx, test.Features))(t)
	p := must.Get(metric.Predict(ctx, []erm.Theta{limit}, rows, 1))(t)
	held := 0
	for i, v := range p.P {
		if !(0 <= wideLow[i] && wideLow[i] <= low[i] && low[i] <= high[i] &&
			high[i] <= wideHigh[i] && wideHigh[i] <= 1) {
			t.Fatalf("element %d: %v to %v at .9, %v to %v at .99", i, low[i], high[i],
				wideLow[i], wideHigh[i])
		}
		if low[i] <= v && v <= high[i] {
			held++
		}
	}
	if share := float64(held) / float64(len(p.P)); share < 0.8 {
		t.Errorf("intervals stated to hold 90%% hold %.2f of what the classes' means would give", share)
	}
	one := Drawn{Seen: seen, Latent: latent[:k.LatentSize()], Uniform: uniform[:1]}
	must.Fail(k.Intervals(ctx, one, test.Features, 0.9))(t, "2 samples")
}

// near fails where numbers differ by more than a tolerance.
func near(t *testing.T, what string, got, want any, tolerance float64) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, tolerance)); d != "" {
		t.Fatalf("%s differ: %s", what, d)
	}
}

func allRows(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}
