package rival

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/meta"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
	"fmp/pipeline/sample"
	"fmp/pipeline/task"
)

// bootstrap is a Drawer without a model: each drawn point is a seen one, chosen by mass, with noisy
// features.
type bootstrap struct {
	d     int
	calls *int
}

func (b bootstrap) Noise(r *rand.Rand, samples, fresh int) ([]float32, error) {
	e := make([]float32, samples*fresh*b.d)
	rng.Normal(r, e)
	return e, nil
}

func (b bootstrap) Draw(_ context.Context, seen *point.Set, noise []float32,
	samples int) ([]*point.Set, error) {
	if b.calls != nil {
		*b.calls++
	}
	fresh := len(noise) / samples / b.d
	out := make([]*point.Set, samples)
	for s := range out {
		out[s] = point.New(fresh, seen.Dx, seen.C)
		for i := range fresh {
			e := noise[(s*fresh+i)*b.d:][:b.d]
			u := seen.Mass() * (1 + math.Erf(float64(e[0])/math.Sqrt2)) / 2
			j := 0
			for ; j < seen.N-1 && u > float64(seen.W[j]); j++ {
				u -= float64(seen.W[j])
			}
			row := out[s].Row(i)
			copy(row, seen.Row(j))
			for k := range seen.Dx {
				row[k] += 0.5 * e[1+k%(b.d-1)]
			}
		}
	}
	return out, nil
}

// world draws labelled features: class means of length about spread in dx dimensions, unit noise.
type world struct {
	dx, c int
	means []float64
}

func newWorld(seed uint64, dx, c int, spread float64) world {
	w := world{dx, c, make([]float64, dx*c)}
	r := rng.New(seed, "means")
	for i := range w.means {
		w.means[i] = spread * r.NormFloat64() / math.Sqrt(float64(dx))
	}
	return w
}

func (w world) draw(r *rand.Rand, n int) ([]float32, []int) {
	x, y := make([]float32, n*w.dx), make([]int, n)
	for i := range n {
		y[i] = r.IntN(w.c)
		for j := range w.dx {
			x[i*w.dx+j] = float32(w.means[y[i]*w.dx+j] + r.NormFloat64())
		}
	}
	return x, y
}

// input has m clients of n points, whose uploads are class means with masses.
func (w world) input(t testing.TB, seed uint64, m, n int) Input {
	t.Helper()
	in := Input{Drawer: bootstrap{d: w.dx + 1}, Samples: 20, Fresh: 100, Seed: seed, Stream: "test"}
	known, classes := w.draw(rng.New(seed, "corpus"), 40*w.c)
	in.Corpus = must.Get(NewCorpus(known, w.dx, classes, w.c))(t)
	r := rng.New(seed, "points")
	for range m {
		x, y := w.draw(r, n)
		s := must.Get(point.FromLabelled(x, w.dx, y, w.c))(t)
		means := newStatistics(w.dx, w.c)
		means.add(s)
		in.Clients, in.Uploads = append(in.Clients, s), append(in.Uploads, means.points())
	}
	x, y := w.draw(rng.New(1, "corpus"), 100*w.c)
	corpus := must.Get(task.NewBank(x, w.dx, y, w.c))(t)
	model := must.Get(meta.UntrainedConjugate(corpus))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	t.Cleanup(func() { eng.Close() })
	k := must.Get(sample.NewConjugate(eng, model))(t)
	t.Cleanup(func() { k.Close() })
	in.Conjugate = k
	c, values := must.Get2(meta.StartPrivate(corpus, model))(t)
	model = must.Get(models.NewPrivate(c, values))(t)
	private := must.Get(sample.NewPrivate(eng, model))(t)
	t.Cleanup(func() { private.Close() })
	in.Private = private
	in.Privacy = &privacy.Budget{Epsilon: 8, Delta: 1e-5, Unit: privacy.Example,
		Relation: privacy.AddRemove, Noise: privacy.Trusted, Points: n}
	in.ClassMeans = must.Get(k.Compress(context.Background(), in.Clients))(t)
	all := must.Get(point.FromLabelled(known, w.dx, classes, w.c))(t)
	in.Corpus.Read = must.Get(k.Compress(context.Background(), []*point.Set{all}))(t)[0]
	return in
}

func newTestTask(t testing.TB, in Input) *Task {
	t.Helper()
	return must.Get(NewTask(in))(t)
}

// evaluated returns a result's scores on labelled features.
func evaluated(t *testing.T, r *posterior.Result, x []float32, y []int) metric.Scores {
	t.Helper()
	return must.Get((&score.Test{Features: x, Labels: y}).Score(t.Context(), nil, r, 2))(t).Scores
}

// closedMethods returns the methods that tasks without an open predictor can run.
func closedMethods() []Method {
	return slices.DeleteFunc(All(), func(m Method) bool { return m.Info().Fitted })
}

// TestMethodsOnGaussianClasses runs the table on classes that a head can tell apart, and checks its
// orderings.
func TestMethodsOnGaussianClasses(t *testing.T) {
	w := newWorld(1, 64, 10, 5)
	if testing.Short() {
		w = newWorld(1, 16, 10, 5)
	}
	in := w.input(t, 2, 10, 20)
	task := newTestTask(t, in)
	x, y := w.draw(rng.New(3, "test"), 2000)
	got := map[string]metric.Scores{}
	for _, m := range closedMethods() {
		start := time.Now()
		r := must.Get(m.Run(context.Background(), task, DefaultSettings()))(t)
		took := time.Since(start)
		s := evaluated(t, r, x, y)
		got[m.Info().Name] = s
		t.Logf("%-6s acc %.3f ece %.3f nll %.3f brier %.3f upload %6.0f %v %v", m.Info().Name, s.ACC,
			s.ECE, s.NLL, s.Brier, r.UploadBytes, took.Round(time.Millisecond), r.Diagnostics)
	}
	for _, k := range [][2]string{{"ANN", "LANN"}, {"BNN", "LBNN"}, {"MP", "LMP"}, {"FMP", "LMP"},
		{"FMP-mean", "LMP"}, {"FMP-ISAB", "LMP"}, {"CANN", "LANN"}, {"FedCGS", "LANN"},
		{"NCM", "LANN"}, {"LDA", "LANN"}, {"PLDA", "LANN"}, {"Regression", "LANN"}, {"GH-LDA", "LANN"},
		{"GH-QDA", "LANN"}, {"Fed3R", "LANN"},
		{"FedPFT", "LANN"}, {"PredBayes", "LANN"}, {"FMP-DP", "LANN"}} {
		if got[k[0]].ACC < got[k[1]].ACC+0.05 {
			t.Errorf("ACC of %s is %.3f, of %s %.3f; all clients' data should do clearly better "+
				"than one client's", k[0], got[k[0]].ACC, k[1], got[k[1]].ACC)
		}
	}
	if a := got["PRIOR"].ACC; math.Abs(a-0.1) > 0.01 {
		t.Errorf("ACC of PRIOR is %.3f; shuffled labels should give chance, 0.1", a)
	}
}

// TestThreadsDoNotMatter compares every number of every method between 1 and 2 threads.
func TestThreadsDoNotMatter(t *testing.T) {
	w := newWorld(1, 6, 3, 4)
	in := w.input(t, 2, 4, 8)
	in.Samples, in.Fresh = 6, 10
	for _, covariance := range []string{Diagonal, Full} {
		s := DefaultSettings()
		s.Covariance, s.Warmup, s.Draws = covariance, 20, 20
		var tasks [2]*Task
		for i := range tasks {
			in.Threads = i + 1
			tasks[i] = newTestTask(t, in)
		}
		for _, m := range closedMethods() {
			var r [2]*posterior.Result
			for i := range r {
				r[i] = must.Get(m.Run(context.Background(), tasks[i], s))(t)
			}
			// The conjugate predictor is one and the same, with sessions that cannot be compared.
			same := cmp.Comparer(func(a, b *sample.Conjugate) bool { return a == b })
			private := cmp.Comparer(func(a, b *sample.Private) bool { return a == b })
			if d := cmp.Diff(r[0], r[1], cmp.Exporter(func(reflect.Type) bool { return true }),
				same, private); d != "" {
				t.Errorf("%s with 1 and 2 threads differ: %s", m.Info().Name, d)
			}
		}
	}
}

// TestOneClient: with one client that uploads its own points, federated, local and centralised
// methods are the same.
func TestOneClient(t *testing.T) {
	w := newWorld(1, 5, 3, 3)
	in := w.input(t, 2, 1, 30)
	in.Samples, in.Fresh = 100, 12 // as many as BNNs keep at least
	in.Uploads = in.Clients
	task := newTestTask(t, in)
	s := DefaultSettings()
	run := func(name string) posterior.Ensemble {
		m := must.Get(Lookup(name))(t)
		r := must.Get(m.Run(context.Background(), task, s))(t)
		if len(r.Ensembles) != 1 {
			t.Fatalf("%s has %d ensembles for one client", name, len(r.Ensembles))
		}
		return r.Ensembles[0]
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9*(1+math.Abs(a)) })
	for _, k := range [][2]string{{"MP", "FMP-ISAB"}, {"LMP", "CFMP"}, {"LBNN", "CBNN"},
		{"ANN", "LANN"}, {"ANN", "CANN"}} {
		if d := cmp.Diff(run(k[0]), run(k[1]), near); d != "" {
			t.Errorf("%s and %s differ for one client: %s", k[0], k[1], d)
		}
	}
}

// recorder keeps the noise that a Drawer was given.
type recorder struct {
	bootstrap
	noise map[*point.Set][]float32
}

func (r recorder) Draw(ctx context.Context, seen *point.Set, noise []float32,
	samples int) ([]*point.Set, error) {
	r.noise[seen] = noise
	return r.bootstrap.Draw(ctx, seen, noise, samples)
}

// TestBaseNoise: MP and FMP-ISAB read one E; every client has its own; another lambda draws nothing
// anew.
func TestBaseNoise(t *testing.T) {
	w := newWorld(1, 5, 3, 3)
	in := w.input(t, 2, 3, 10)
	in.Samples, in.Fresh = 4, 6
	rec := recorder{bootstrap{d: 6}, map[*point.Set][]float32{}}
	in.Drawer = rec
	task := newTestTask(t, in)
	s := DefaultSettings()
	for _, l2 := range []float64{1, 3} {
		s.L2 = l2
		for _, m := range []Method{lmp, mp, cfmp, fmpISAB} {
			must.Get(m.Run(context.Background(), task, s))(t)
		}
	}
	if len(rec.noise) != 5 {
		t.Fatalf("points were drawn for %d contexts; want 5: three clients, their pool, their uploads",
			len(rec.noise))
	}
	base := rec.noise[task.pooled()]
	var shared int
	for seen, e := range rec.noise {
		switch {
		case cmp.Equal(e, base):
			shared++
		case seen != in.Clients[0] && seen != in.Clients[1] && seen != in.Clients[2]:
			t.Error("a pooled context has another E than MP's")
		}
	}
	if shared != 2 {
		t.Errorf("%d contexts share MP's E; want 2, MP's and FMP-ISAB's", shared)
	}
	if cmp.Equal(rec.noise[in.Clients[0]], rec.noise[in.Clients[1]]) {
		t.Error("clients 0 and 1 have the same E")
	}
}

// TestClassWithoutPoints: a class that no client has stays possible and finite in every method.
func TestClassWithoutPoints(t *testing.T) {
	w := newWorld(1, 5, 4, 3)
	in := w.input(t, 2, 3, 12)
	in.Samples, in.Fresh = 4, 6
	for _, sets := range [][]*point.Set{in.Clients, in.Uploads} {
		for _, s := range sets {
			for i := range s.N {
				if label := s.Row(i)[5:]; label[3] == 1 {
					label[3], label[0] = 0, 1
				}
			}
		}
	}
	task := newTestTask(t, in)
	x, y := w.draw(rng.New(3, "test"), 100)
	for _, m := range closedMethods() {
		r, err := m.Run(context.Background(), task, DefaultSettings())
		if err != nil {
			t.Error(err)
			continue
		}
		if nll := evaluated(t, r, x, y).NLL; math.IsNaN(nll) || math.IsInf(nll, 0) {
			t.Errorf("%s: NLL %v", m.Info().Name, nll)
		}
	}
}

// TestTune finds the least NLL of the grid and returns settings that reproduce it.
func TestTune(t *testing.T) {
	w := newWorld(1, 10, 4, 3)
	var held []Held
	for i := range 2 {
		in := w.input(t, uint64(i), 3, 10)
		in.Samples, in.Fresh = 4, 10
		h := Held{Task: newTestTask(t, in)}
		h.Features, h.Labels = w.draw(rng.New(uint64(i), "held"), 300)
		held = append(held, h)
	}
	control, _ := must.Get2(Tune(context.Background(), prior, held, DefaultSettings(), nil))(t)
	if c, _, err := Tune(context.Background(), fmp, held, DefaultSettings(), nil); err != nil ||
		c.Temperature != control.Temperature {
		t.Errorf("PRIOR got temperature %v; it follows FMP, which got %v (%v)", control.Temperature,
			c.Temperature, err)
	}
	for _, m := range []Method{cann, fmpISAB, fedcgs} {
		c, s := must.Get2(Tune(context.Background(), m, held, DefaultSettings(), nil))(t)
		if len(c.NLL) != len(c.Grid) || len(c.Grid) < len(m.Info().Grid)+2 || !slices.IsSorted(c.Grid) {
			t.Fatalf("%s: %d figures of the values %v; want those of %v and finer ones", c.Method,
				len(c.NLL), c.Grid, m.Info().Grid)
		}
		best := slices.Index(c.Grid, c.Value)
		if least := slices.Min(c.NLL); best < 0 || c.NLL[best] != least {
			t.Errorf("%s: chose %v of NLL %v; the least is %v", c.Method, c.Value, c.NLL, least)
		}
		var nll float64
		for _, h := range held {
			r := must.Get(m.Run(context.Background(), h.Task, s))(t)
			nll += evaluated(t, r, h.Features, h.Labels).NLL / 2
		}
		if math.Abs(nll-c.NLL[best]) > 1e-6 {
			t.Errorf("%s: the settings returned have NLL %v, the choice %v", c.Method, nll, c.NLL[best])
		}
	}
}

func TestTuneFindsTheMinimumBetweenGridPoints(t *testing.T) {
	w := newWorld(1, 10, 4, 3)
	in := w.input(t, 1, 3, 10)
	h := Held{Task: newTestTask(t, in)}
	h.Features, h.Labels = w.draw(rng.New(1, "held"), 2000)
	fine := make([]float64, 0, 200)
	for v := 0.03; v < 30; v *= 1.05 {
		fine = append(fine, v)
	}
	want, _ := must.Get2(Tune(context.Background(), ann, []Held{h}, DefaultSettings(), fine))(t)
	got, _ := must.Get2(Tune(context.Background(), ann, []Held{h}, DefaultSettings(), nil))(t)
	// An eighth of a decade is a factor of 1.33, and half of that is as near as the values tried
	// must come.
	if r := got.Value / want.Value; r < 1/1.3 || r > 1.3 {
		t.Errorf("chose %g of %v; a fine search finds %g", got.Value, got.Grid, want.Value)
	}
	// The grid goes on where its end is best: here all of it lies below the minimum.
	m := ann
	m.info.Grid = []float64{want.Value / 30, want.Value / 10}
	got, _ = must.Get2(Tune(context.Background(), m, []Held{h}, DefaultSettings(), nil))(t)
	if r := got.Value / want.Value; r < 1/1.3 || r > 1.3 {
		t.Errorf("beyond its grid: chose %g of %v; a fine search finds %g", got.Value,
			got.Grid, want.Value)
	}
	// So it does where the setting is a further one.
	m.info.Param, m.info.Grid = "", nil
	m.info.More = []Param{{ParamL2, []float64{want.Value / 30, want.Value / 10}}}
	got, _ = must.Get2(Tune(context.Background(), m, []Held{h}, DefaultSettings(), nil))(t)
	if r := got.More[ParamL2] / want.Value; r < 1/1.8 || r > 1.8 || got.AtEnd() != nil {
		t.Errorf("beyond the grid of a further setting: chose %v of %v; a fine search finds %g", got.More,
			got.MoreTried, want.Value)
	}
	if len(want.Grid) != len(fine) {
		t.Errorf("%d values tried of %d given", len(want.Grid), len(fine))
	}
}

// failing is a Drawer that fails, or returns what no graph should.
type failing func(seen *point.Set, samples int) ([]*point.Set, error)

func (failing) Noise(*rand.Rand, int, int) ([]float32, error) { return nil, nil }
func (f failing) Draw(_ context.Context, seen *point.Set, _ []float32,
	samples int) ([]*point.Set, error) {
	return f(seen, samples)
}

func TestErrors(t *testing.T) {
	w := newWorld(1, 5, 3, 3)
	run := func(m Method, change func(in *Input, s *Settings)) func() error {
		return func() error {
			in, s := w.input(t, 2, 2, 6), DefaultSettings()
			in.Samples, in.Fresh = 4, 6
			change(&in, &s)
			task, err := NewTask(in)
			if err != nil {
				return err
			}
			_, err = m.Run(context.Background(), task, s)
			return err
		}
	}
	lost := func(in *Input, _ *Settings) {
		in.Drawer = failing(func(*point.Set, int) ([]*point.Set, error) {
			return nil, errors.New("the device is lost")
		})
	}
	for want, do := range map[string]func() error{
		"ANN: posterior: l2 is -1": run(ann, func(_ *Input, s *Settings) { s.L2 = -1 }),
		"shrinkage is 2":           run(fedcgs, func(_ *Input, s *Settings) { s.Shrinkage = 2 }),
		"raise the shrinkage": run(fedcgs, func(in *Input, s *Settings) {
			s.Shrinkage = 0
			in.Clients, in.ClassMeans = in.Clients[:1], in.ClassMeans[:1]
			in.Uploads = nil
		}),
		`sampler is "nuts"`: run(bnn, func(_ *Input, s *Settings) { s.Sampler = "nuts" }),
		`covariance is "block"`: run(cbnn,
			func(_ *Input, s *Settings) { s.Covariance = "block" }),
		"number of chains is 1":       run(bnn, func(_ *Input, s *Settings) { s.Chains = 1 }),
		"FMP: no conjugate predictor": run(fmp, func(in *Input, _ *Settings) { in.Conjugate = nil }),
		"FMP-ISAB: no uploads":        run(fmpISAB, func(in *Input, _ *Settings) { in.Uploads = nil }),
		"PRIOR: no uploads": run(prior,
			func(in *Input, _ *Settings) { in.Conjugate, in.Uploads = nil, nil }),
		"class means of 1 of 2 clients": run(fmp,
			func(in *Input, _ *Settings) { in.ClassMeans = in.ClassMeans[:1] }),
		"MP: no predictor": run(mp, func(in *Input, _ *Settings) { in.Drawer = nil }),
		"FMP-DP: no private predictor and budget": run(fmpDP,
			func(in *Input, _ *Settings) { in.Privacy = nil }),
		"FMP-DP-plugin: no private predictor and budget": run(fmpDPPlugin,
			func(in *Input, _ *Settings) { in.Privacy = nil }),
		"FedPFT-DP: no private predictor and budget": run(fedpftDP,
			func(in *Input, _ *Settings) { in.Private = nil }),
		"1 uploads of 2 clients": run(fmp,
			func(in *Input, _ *Settings) { in.Uploads = in.Uploads[:1] }),
		"no clients and no uploads": run(ann, func(in *Input, _ *Settings) {
			in.Clients, in.Uploads, in.ClassMeans = nil, nil, nil
		}),
		"ANN: the clients' own points are not here": run(ann,
			func(in *Input, _ *Settings) { in.Clients = nil }),
		"client 1 has no points": run(ann,
			func(in *Input, _ *Settings) { in.Clients[1] = point.New(0, 5, 3) }),
		"client 1 has dx 4": run(ann,
			func(in *Input, _ *Settings) { in.Clients[1] = point.New(2, 4, 3) }),
		"upload 0: feature 3 of point 0 is NaN": run(fmp,
			func(in *Input, _ *Settings) { in.Uploads[0].Z[3] = float32(math.NaN()) }),
		"client 0: weight of point 2 is -1": run(ann,
			func(in *Input, _ *Settings) { in.Clients[0].W[2] = -1 }),
		"-3 samples":                             run(mp, func(in *Input, _ *Settings) { in.Samples = -3 }),
		"consensus from 1 sample":                run(cfmp, func(in *Input, _ *Settings) { in.Samples = 1 }),
		"MP: drawing points: the device is lost": run(mp, lost),
		"made 1 sets, 4 were asked for": run(mp, func(in *Input, _ *Settings) {
			in.Drawer = failing(func(s *point.Set, _ int) ([]*point.Set, error) { return []*point.Set{s}, nil })
		}),
		"client 0: drawing points": run(lmp, lost),
		"sample 0: points drawn have dx 2": run(mp, func(in *Input, _ *Settings) {
			in.Drawer = failing(func(_ *point.Set, n int) ([]*point.Set, error) {
				return slices.Repeat([]*point.Set{point.New(1, 2, 3)}, n), nil
			})
		}),
		"tuning ANN: no tasks": func() error {
			_, _, err := Tune(context.Background(), ann, nil, DefaultSettings(), nil)
			return err
		},
		`no tunable setting "depth"`: func() error {
			_, err := DefaultSettings().With("depth", 1)
			return err
		},
		"did you mean CBNN?": func() error { _, err := Lookup("CBN"); return err },
	} {
		must.Fail(do())(t, want)
	}
}

// TestTuningErrors: a method without a setting is named, and beside its setting.
func TestTuningErrors(t *testing.T) {
	h := Held{Task: newTestTask(t, newWorld(1, 10, 4, 3).input(t, 1, 3, 10))}
	m := method{Info{Name: "X"}, func(context.Context, *Task, Settings) (*posterior.Result, error) {
		return nil, errors.New("no names")
	}}
	for param, want := range map[string]string{
		"":      "tuning X on task 0: X: no names",
		ParamL2: "tuning " + ParamL2 + " of X = 0.5 on task 0: X: no names",
	} {
		if m.info.Param = param; param != "" {
			m.info.Grid = []float64{0.5}
		}
		_, _, err := Tune(t.Context(), m, []Held{h}, DefaultSettings(), nil)
		must.Fail(err)(t, want)
	}
}

// TestCancel stops every method before it starts, then lets it run: nothing half made is
// remembered.
func TestCancel(t *testing.T) {
	w := newWorld(1, 5, 3, 3)
	in := w.input(t, 2, 2, 6)
	in.Samples, in.Fresh = 4, 6
	task := newTestTask(t, in)
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for _, m := range []Method{lann, lbnn, lmp, ann, bnn, mp, cfmp, fmp, prior} {
		if _, err := m.Run(stopped, task, DefaultSettings()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", m.Info().Name, err)
		}
	}
	for _, m := range closedMethods() {
		must.Get(m.Run(context.Background(), task, DefaultSettings()))(t)
	}
}
