package rival

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/meta"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// openTask returns a task in open scope.
func openTask(t *testing.T, threads int) *Task {
	t.Helper()
	w := newWorld(1, 6, 3, 4)
	in := w.input(t, 2, 4, 8)
	in.Threads, in.Latents, in.Scope = threads, 200, posterior.ScopeOpen
	x, y := newWorld(5, 6, 8, 4).draw(rng.New(1, "corpus"), 800)
	corpus := must.Get(task.NewBank(x, 6, y, 8))(t)
	in.Open = must.Get(meta.UntrainedOpen(corpus, 6))(t)
	for _, c := range in.Clients {
		in.Soft = append(in.Soft, must.Get(in.Open.Soften(c))(t))
	}
	return newTestTask(t, in)
}

// variance returns the mean over weights of the variance of heads, and the mean head.
func variance(e posterior.Ensemble) (v float64, mean []float64) {
	mean, cov := rowMoments(e)
	for i := range mean {
		v += cov.At(i, i) / float64(len(mean))
	}
	return v, mean
}

// TestFitted: the heads of FMP-Laplace scatter about FMP-mean's, and those of FMP-joint about FMP's
// as at scale 0, with a variance that grows with the scale; neither depends on threads; in closed
// scope both are errors.
func TestFitted(t *testing.T) {
	ctx := context.Background()
	open := openTask(t, 1)
	run := func(m Method, task *Task, scale float64) posterior.Ensemble {
		t.Helper()
		s := DefaultSettings()
		s.Scale = scale
		return must.Get(m.Run(ctx, task, s))(t).Ensembles[0]
	}
	mean := run(fmpMean, open, 1)[0]
	if off := floats.Distance(run(fmpLaplace, open, 0)[7].W, mean.W, math.Inf(1)); !(off <= 1e-3) {
		t.Fatalf("weights of FMP-Laplace at scale 0 are up to %v from those of FMP-mean", off)
	}
	quarter, _ := variance(run(fmpLaplace, open, 0.25))
	one, _ := variance(run(fmpLaplace, open, 1))
	if math.Abs(one/quarter-4) > 1e-6 {
		t.Errorf("FMP-Laplace has variance %v at scale 1/4 and %v at 1", quarter, one)
	}
	plain := run(fmp, open, 1)
	if d := cmp.Diff(plain, run(fmpJoint, open, 0)); d != "" {
		t.Fatalf("FMP and FMP-joint at scale 0 differ: %s", d)
	}
	// The two uncertainties add up: that of class means, FMP's own, and the fit's, which is
	// FMP-Laplace's.
	means, _ := variance(plain)
	both, _ := variance(run(fmpJoint, open, 1))
	if ratio := both / (means + one); ratio < 0.8 || ratio > 1.25 {
		t.Errorf("FMP-joint has variance %v; FMP %v and FMP-Laplace %v", both, means, one)
	}
	for _, m := range []Method{fmpLaplace, fmpJoint} {
		if d := cmp.Diff(run(m, open, 1), run(m, openTask(t, 2), 1)); d != "" {
			t.Fatalf("%s on one thread and on two: %s", m.Info().Name, d)
		}
		must.Fail(m.Run(ctx, newTestTask(t, newWorld(1, 6, 3, 4).input(t, 2, 4, 8)),
			DefaultSettings()))(t, "", fmt.Sprintf("%s in closed scope is no error", m.Info().Name))
	}
}

// TestAtEnd: a chosen value is at an end where one beyond might be better, and not where the
// setting ends or the curve is flat.
func TestAtEnd(t *testing.T) {
	for _, c := range []struct {
		name  string
		param string
		value float64
		grid  []float64
		nll   []float64
		want  bool
	}{
		{"falling", ParamShrinkage, 0.97, []float64{0.7, 0.9, 0.97}, []float64{3, 2, 1}, true},
		{"rising", ParamL2, 0.1, []float64{0.1, 1, 10}, []float64{1, 2, 3}, true},
		{"interior", ParamL2, 1, []float64{0.1, 1, 10}, []float64{2, 1, 3}, false},
		{"a bound above", ParamShrinkage, 1, []float64{0.9, 0.97, 1}, []float64{3, 2, 1}, false},
		{"a bound below", ParamBeta, 0, []float64{0, 0.5, 1}, []float64{1, 2, 3}, false},
		{"flat", ParamL2, 1e6, []float64{1e4, 1e5, 1e6}, []float64{1.00003, 1.00002, 1.00001}, false},
		{"one value", ParamL2, 1, []float64{1}, []float64{1}, false},
	} {
		choice := Choice{Param: c.param, Value: c.value, Grid: c.grid, NLL: c.nll}
		if got := choice.AtEnd(); (len(got) == 1 && got[0] == c.param) != c.want || len(got) > 1 {
			t.Errorf("%s: %v", c.name, got)
		}
		further := Choice{More: map[string]float64{c.param: c.value},
			MoreTried: map[string]Tried{c.param: {c.grid, c.nll}}}
		if got := further.AtEnd(); (len(got) == 1 && got[0] == c.param) != c.want || len(got) > 1 {
			t.Errorf("%s, of a further setting: %v", c.name, got)
		}
	}
	for l2, want := range map[float64]bool{0.1: true, 1: false, 10: true} {
		earlier := Choice{Method: "PredBayes", More: map[string]float64{ParamL2: l2}}
		if got := earlier.AtEnd(); (got != nil) != want {
			t.Errorf("l2 %v of a choice that names no values tried: %v", l2, got)
		}
	}
}

// TestJointCriterion: the joint NLL of tuning is that of scores at the same temperature, and is
// added for methods whose setting is a scale of the spread, alone.
func TestJointCriterion(t *testing.T) {
	ctx := context.Background()
	open := openTask(t, 1)
	x, y := newWorld(1, 6, 3, 4).draw(rng.New(3, "held"), 60)
	held := Held{Task: open, Features: x, Labels: y,
		Batches: metric.NearBatches(rng.New(4, "joint"), x, 6, 50)}
	r := must.Get(fmpJoint.Run(ctx, open, DefaultSettings()))(t)
	l := must.Get(newLogits(ctx, r, held))(t)
	rows := must.Get(r.Rows(ctx, x))(t)
	s := must.Get(metric.Examine(ctx, Cooled(r, 2).Ensembles[0], rows, y, 1))(t)
	if got, want := l.joint(2, held.Batches),
		metric.JointNLL(s.Likelihood, held.Batches); math.Abs(got-want) > 1e-5 {
		t.Errorf("joint NLL %v in tuning, %v in scores", got, want)
	}
	for _, c := range []struct {
		method Method
		more   bool
	}{{fmpJoint, true}, {fmpLaplace, true}, {fmp, false}} {
		var nll [2]float64
		for i, batches := range [][][]int{nil, held.Batches} {
			held.Batches = batches
			choice, _, err := Tune(ctx, c.method, []Held{held}, DefaultSettings(), []float64{1})
			must.Do(t, err)
			nll[i] = choice.NLL[0]
		}
		if more := nll[1] > nll[0]; more != c.more {
			t.Errorf("%s is tuned by %v without batches and %v with",
				c.method.Info().Name, nll[0], nll[1])
		}
	}
}

// TestBetween: finer values lie beside every minimum that may be the least, and of a plateau beside
// its first value.
func TestBetween(t *testing.T) {
	grid := []float64{0, 1, 4, 16, 64, 256}
	for _, c := range []struct {
		name string
		nll  []float64
		want []float64
	}{
		{"one", []float64{3, 2, 1, 2, 3, 4}, []float64{2, 8}},
		{"two", []float64{3, 1.05, 2, 3, 1, 2}, []float64{0.5, 2, 32, 128}},
		{"far above", []float64{3, 1.5, 2, 3, 1, 2}, []float64{32, 128}},
		{"ends", []float64{1, 2, 3, 2, 1.5, 1}, []float64{0.5, 128}},
		{"plateau", []float64{2, 1, 1, 1, 2, 3}, []float64{0.5, 2}},
	} {
		if got := between(grid, c.nll); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestFisher: the subspace whitens the shrunk covariance within classes and has no more dimensions
// than classes less one where these differ along so many; heads lie in it; on Gaussian classes they
// are as right as the discriminant.
func TestFisher(t *testing.T) {
	const dx, c = 6, 3
	w := newWorld(1, dx, c, 4)
	task := newTestTask(t, w.input(t, 2, 6, 40))
	f := must.Get(task.fisher(0.05))(t)
	if f.k != c-1 {
		t.Errorf("%d dimensions separate %d classes", f.k, c)
	}
	if !mat.EqualApprox(f.pooled, identity(f.k), 1e-5) {
		t.Errorf("covariance within classes in the subspace\n%v", mat.Formatted(f.pooled))
	}
	x, y := w.draw(rng.New(3, "test"), 2000)
	right := func(m Method) float64 {
		s := DefaultSettings()
		s.Shrinkage = 0.05
		r := must.Get(m.Run(context.Background(), task, s))(t)
		head := r.Ensembles[0][0]
		var svd mat.SVD
		if svd.Factorize(mat.NewDense(dx, c, head.W[:dx*c]), mat.SVDNone); m.Info().Name != "GH-LDA" &&
			svd.Values(nil)[f.k] > 1e-6*svd.Values(nil)[0] {
			t.Errorf("%s: weights have singular values %v in a subspace of %d dimensions",
				m.Info().Name, svd.Values(nil), f.k)
		}
		p := probabilities(t, r, x)
		n := 0.0
		for i, truth := range y {
			if floats.MaxIdx(p.Row(i)) == truth {
				n++
			}
		}
		return n / float64(len(y))
	}
	if got, want := right(fisherMix), right(ghlda); math.Abs(got-want) > 0.02 {
		t.Errorf("FisherMix is right on %.3f, GH-LDA on %.3f", got, want)
	}
}

// TestFedCGSCorpus: without shrinkage it is FedCGS; wholly shrunk its covariance is the corpus's,
// in the size of the clients' own.
func TestFedCGSCorpus(t *testing.T) {
	const dx, c = 5, 3
	w := newWorld(1, dx, c, 3)
	in := w.input(t, 2, 4, 30)
	task := newTestTask(t, in)
	run := func(m Method, shrinkage float64) []float64 {
		s := DefaultSettings()
		s.Shrinkage, s.Spread = shrinkage, 0
		return must.Get(m.Run(context.Background(), task, s))(t).Ensembles[0][0].W
	}
	if a, b := run(fedcgsCorpus, 0), run(fedcgs, 0); !floats.EqualApprox(a, b, 1e-9) {
		t.Errorf("without shrinkage %v, FedCGS %v", a[:3], b[:3])
	}
	stats := task.statistics()
	own := must.Get(stats.within())(t)
	var whole, weights mat.Dense
	whole.Scale(mat.Trace(own)/mat.Trace(in.Corpus.Within), in.Corpus.Within)
	must.Do(t, weights.Solve(&whole, stats.means().T()))
	if got := run(fedcgsCorpus, 1)[:dx*c]; !floats.EqualApprox(got, weights.RawMatrix().Data, 1e-8) {
		t.Errorf("wholly shrunk %v; want %v", got[:3], weights.RawMatrix().Data[:3])
	}
}

// TestOneImageOfAClass: where no class has two different images, methods of the covariance within
// classes say so, whatever the rounding; one that has the corpus's takes that.
func TestOneImageOfAClass(t *testing.T) {
	w := newWorld(1, 5, 3, 3)
	known := w.input(t, 1, 2, 4).Corpus
	for name, x := range map[string]struct {
		rows []int // a class's
		ok   bool
	}{
		"one":       {[]int{0}, false},
		"the same":  {[]int{0, 0, 0}, false},
		"different": {[]int{0, 1}, true},
	} {
		for seed := range uint64(8) {
			features, _ := w.draw(rng.New(seed, "points"), 2*w.c)
			in := Input{Corpus: known, Seed: 1, Stream: "test"}
			for c := range w.c {
				var rows []float32
				for _, i := range x.rows {
					rows = append(rows, features[(2*c+i)*w.dx:(2*c+i+1)*w.dx]...)
				}
				in.Clients = append(in.Clients, must.Get(point.FromLabelled(rows, w.dx,
					slices.Repeat([]int{c}, len(x.rows)), w.c))(t))
			}
			task := newTestTask(t, in)
			for _, m := range []Method{fedcgs, ghlda, ghqda, fisherMix, fedcgsCorpus} {
				_, err := m.Run(context.Background(), task, DefaultSettings())
				if ok := x.ok || m.Info().NeedsCorpus; (err == nil) != ok ||
					!ok && !strings.Contains(err.Error(), "no class has two different images") {
					t.Errorf("%s image of seed %d: %s: %v", name, seed, m.Info().Name, err)
				}
			}
		}
	}
}
