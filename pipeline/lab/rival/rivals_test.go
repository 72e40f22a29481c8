package rival

import (
	"context"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distmv"
	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
)

// probabilities are what a result says of rows.
func probabilities(t *testing.T, r *posterior.Result, x []float32) *metric.Probabilities {
	t.Helper()
	rows := must.Get(r.Rows(context.Background(), x))(t)
	return must.Get(metric.Predict(context.Background(), r.Ensembles[0], rows, 1))(t)
}

// logNormal is the log-density of N(mean, cov).
func logNormal(t *testing.T, x, mean []float64, cov mat.Symmetric) float64 {
	t.Helper()
	d, ok := distmv.NewNormal(mean, cov, nil)
	if !ok {
		t.Fatal("covariance is not positive definite")
	}
	return d.LogProb(x)
}

// near compares probabilities with the log-densities of the classes written out.
func near(t *testing.T, what string, p *metric.Probabilities, x []float32,
	log func(x []float64, y int) float64) {
	t.Helper()
	rows, logs := moment.Rows(x, len(x)/p.N), make([]float64, p.C)
	for i := range p.N {
		for c := range logs {
			logs[c] = log(rows.RawRowView(i), c)
		}
		for c, v := range p.Row(i) {
			if want := math.Exp(logs[c] - floats.LogSumExp(logs)); math.Abs(v-want) > 1e-4 {
				t.Fatalf("%s: point %d, class %d: probability %v, written out %v", what, i, c, v, want)
			}
		}
	}
}

// TestDiscriminants compares the closed forms, which go by coordinates in which covariances are
// diagonal, with Gaussian densities in the features, W and B as they are.
func TestDiscriminants(t *testing.T) {
	const dx, c = 4, 3
	w := newWorld(1, dx, c, 2)
	in := w.input(t, 2, 3, 12)
	task := newTestTask(t, in)
	x, _ := w.draw(rng.New(3, "test"), 40)
	s := DefaultSettings()
	s.Shrinkage, s.Spread = 0.2, 0
	run := func(m Method) *posterior.Result {
		return must.Get(m.Run(context.Background(), task, s))(t)
	}
	k := in.Corpus
	within := moment.Shrunk(k.Within, s.Shrinkage)
	// B as the model has it: without directions of negative variance.
	l := must.Get(k.latent(s.Shrinkage))(t)
	var inverse mat.Dense
	must.Do(t, inverse.Inverse(l.v))
	between := mat.NewSymDense(dx, nil)
	for j, b := range l.beta {
		between.SymRankOne(between, b, mat.NewVecDense(dx, inverse.RawRowView(j)))
	}
	stats := task.statistics()
	means := stats.means()
	var posteriorMeans [c][]float64
	var predictive [c]*mat.SymDense
	for y := range c {
		// mu ~ N(m0, B), xbar | mu ~ N(mu, W / n): K = B (B + W/n)^-1.
		var total, gain mat.Dense
		total.Scale(1/stats.count[y], within)
		total.Add(&total, between)
		var inv mat.Dense
		must.Do(t, inv.Inverse(&total))
		gain.Mul(between, &inv)
		d := mat.NewVecDense(dx, nil)
		d.SubVec(means.RowView(y), mat.NewVecDense(dx, k.Centre))
		var m mat.VecDense
		m.MulVec(&gain, d)
		m.AddVec(&m, mat.NewVecDense(dx, k.Centre))
		posteriorMeans[y] = m.RawVector().Data
		var kb mat.Dense
		kb.Mul(&gain, between)
		predictive[y] = mat.NewSymDense(dx, nil)
		for i := range dx {
			for j := i; j < dx; j++ {
				predictive[y].SetSym(i, j, within.At(i, j)+between.At(i, j)-(kb.At(i, j)+kb.At(j, i))/2)
			}
		}
	}
	near(t, "PLDA", probabilities(t, run(plda), x), x, func(x []float64, y int) float64 {
		return logNormal(t, x, posteriorMeans[y], predictive[y])
	})
	near(t, "LDA", probabilities(t, run(lda), x), x, func(x []float64, y int) float64 {
		return logNormal(t, x, posteriorMeans[y], within)
	})
	isotropic := moment.Shrunk(k.Within, 1)
	near(t, "NCM", probabilities(t, run(ncm), x), x, func(x []float64, y int) float64 {
		return logNormal(t, x, means.RawRowView(y), isotropic)
	})
	var covariances [c]*mat.SymDense // denominator n_c
	pooled := mat.NewSymDense(dx, nil)
	for y := range c {
		var rows []float32
		for _, set := range in.Clients {
			for i := range set.N {
				if row := set.Row(i); row[dx+y] == 1 {
					rows = append(rows, row[:dx]...)
				}
			}
		}
		var cov, part mat.SymDense
		stat.CovarianceMatrix(&cov, moment.Rows(rows, dx), nil)
		n := float64(len(rows) / dx)
		part.ScaleSym((n-1)/(floats.Sum(stats.count)-c), &cov)
		pooled.AddSym(pooled, &part)
		cov.ScaleSym((n-1)/n, &cov)
		covariances[y] = &cov
	}
	near(t, "GH-QDA", probabilities(t, run(ghqda), x), x, func(x []float64, y int) float64 {
		return logNormal(t, x, means.RawRowView(y), moment.Shrunk(covariances[y], s.Shrinkage)) +
			math.Log(stats.count[y]+0.5)
	})
	near(t, "FedCGS", probabilities(t, run(fedcgs), x), x, func(x []float64, y int) float64 {
		return logNormal(t, x, means.RawRowView(y), moment.Shrunk(pooled, s.Shrinkage)) +
			math.Log(stats.count[y]+0.5)
	})
}

// identity is I.
func identity(n int) *mat.DiagDense {
	return mat.NewDiagDense(n, slices.Repeat([]float64{1}, n))
}

// TestFed3RIsRidge: its head solves the normal equations of the pooled points, up to the length of
// its columns.
func TestFed3RIsRidge(t *testing.T) {
	w := newWorld(1, 4, 3, 3)
	in := w.input(t, 2, 3, 10)
	task := newTestTask(t, in)
	s := DefaultSettings()
	r := must.Get(fed3r.Run(context.Background(), task, s))(t)
	p := must.Get(erm.FromSets(s.L2, in.Clients...))(t)
	x, y := mat.NewDense(p.N, 5, p.X), mat.NewDense(p.N, 3, p.Y)
	for c := range 3 {
		head := mat.NewVecDense(5, nil)
		for j := range 5 {
			head.SetVec(j, r.Ensembles[0][0].Row(j)[c])
		}
		// (X'X + l2 I) T_c is parallel to X'y_c, and T_c of length 1 / 0.1.
		var fitted, left, right mat.VecDense
		fitted.MulVec(x, head)
		left.MulVec(x.T(), &fitted)
		left.AddScaledVec(&left, s.L2, head)
		right.MulVec(x.T(), y.ColView(c))
		cosine := mat.Dot(&left, &right) / mat.Norm(&left, 2) / mat.Norm(&right, 2)
		if math.Abs(cosine-1) > 1e-9 || math.Abs(mat.Norm(head, 2)-10) > 1e-9 {
			t.Errorf("class %d: cosine %v, length %v", c, cosine, mat.Norm(head, 2))
		}
	}
}

// TestPredBayesCombines: beta 0 is the mixture, beta 1 the product, and what lies between is
// between.
func TestPredBayesCombines(t *testing.T) {
	l := &localPredictions{rows: newTestTask(t, newWorld(1, 2, 2, 1).input(t, 1, 1, 1)).in.Clients[0],
		// of (.9, .1) and (.5, .5)
		mixture:    &metric.Probabilities{N: 1, C: 2, P: []float64{0.7, 0.3}},
		logProduct: &metric.Probabilities{N: 1, C: 2, P: []float64{math.Log(0.45), math.Log(0.05)}}}
	for beta, want := range map[float64]float64{0: 0.7, 1: 0.9,
		0.5: math.Sqrt(0.7*0.45) / (math.Sqrt(0.7*0.45) + math.Sqrt(0.3*0.05))} {
		if got := float64(l.combined(beta).Row(0)[2]); math.Abs(got-want) > 1e-6 {
			t.Errorf("beta %v: %v, want %v", beta, got, want)
		}
	}
}

// TestTemperature: where labels are drawn from the predictions of heads that are then made three
// times as large, the temperature found is 3, and a result run at it predicts what the heads did.
func TestTemperature(t *testing.T) {
	const n, dx, c = 4000, 3, 4
	r := rng.New(1, "temperature")
	x, y := make([]float32, n*dx), make([]int, n)
	rng.Normal(r, x)
	var right, large posterior.Ensemble
	for range 5 {
		h := posterior.Theta{D: dx + 1, C: c, W: normal(r, (dx+1)*c)}
		right = append(right, h)
		big := erm.NewTheta(dx+1, c)
		for i, v := range h.W {
			big.W[i] = 3 * v
		}
		large = append(large, big)
	}
	p := probabilities(t, &posterior.Result{Ensembles: []posterior.Ensemble{right}}, x)
	for i := range y {
		for u := r.Float64(); y[i] < c-1 && u > p.Row(i)[y[i]]; y[i]++ {
			u -= p.Row(i)[y[i]]
		}
	}
	res := &posterior.Result{Ensembles: []posterior.Ensemble{large}}
	for _, start := range []float64{1, 100} {
		l := must.Get(newLogits(context.Background(), res, Held{Features: x, Labels: y}))(t)
		temperature, nll := coolest([]*logits{l}, start)
		if math.Abs(math.Log(temperature/3)) > 0.1 {
			t.Errorf("temperature %v from %v, want 3", temperature, start)
		}
		s := evaluated(t, Cooled(res, temperature), x, y)
		if math.Abs(s.NLL-nll) > 1e-5 {
			t.Errorf("NLL at the temperature is %v, the search found %v", s.NLL, nll)
		}
	}
	if cooled := probabilities(t, Cooled(res, 3), x); math.Abs(cooled.P[5]-p.P[5]) > 1e-12 ||
		large[0].W[0] != 3*right[0].W[0] {
		t.Error("heads divided by 3 do not predict as before, or were changed in place")
	}
}

// TestFewPointsThatAreAllRight: of n points whose logits are 1 above those of the other class the
// next is right with a probability of n/(n + 1), so that T = 1/ln n; of points that err among them
// there is one more.
func TestFewPointsThatAreAllRight(t *testing.T) {
	head := erm.NewTheta(2, 2)
	head.W[1] = 1
	res := &posterior.Result{Ensembles: []posterior.Ensemble{{head, head}}}
	for _, c := range []struct{ right, wrong int }{{20, 0}, {100, 0}, {30, 4}} {
		n := c.right + c.wrong
		x, y := make([]float32, n), make([]int, n)
		for i := range n {
			x[i], y[i] = 1, 1
			if i < c.wrong {
				y[i] = 0
			}
		}
		l := must.Get(newLogits(t.Context(), res, Held{Features: x, Labels: y, Errs: 1}))(t)
		share := float64(c.wrong) / float64(n) // of the one point that errs: where its own class is wrong, it is right
		right, wrong := float64(c.right)+share, float64(c.wrong)+1-share
		got, _ := coolest([]*logits{l}, 1)
		if want := 1 / math.Log(right/wrong); math.Abs(math.Log(got/want)) > 0.02 {
			t.Errorf("%+v: temperature %v; want %v", c, got, want)
		}
	}
}

// TestMembership: for Gaussian classes the figure is about Phi(sqrt(k / 2n)), and there is none
// without class means.
func TestMembership(t *testing.T) {
	const dx, c = 16, 3
	w := newWorld(1, dx, c, 3)
	x, y := w.draw(rng.New(9, "test"), 3000)
	for _, n := range []int{6, 60, 600} {
		task := newTestTask(t, w.input(t, 4, 5, n))
		r := must.Get(ncm.Run(context.Background(), task, DefaultSettings()))(t)
		s := must.Get((&score.Test{Features: x, Labels: y}).Score(context.Background(),
			task.Clients(), r, 1))(t)
		want := distuv.UnitNormal.CDF(math.Sqrt(dx / (2 * float64(n) / c)))
		if s.Membership == nil || math.Abs(*s.Membership-want) > 0.04 {
			t.Errorf("%d points a class: %v, want about %.3f", n/c, s.Membership, want)
		}
	}
	task := newTestTask(t, w.input(t, 4, 5, 30))
	r := must.Get(fed3r.Run(context.Background(), task, DefaultSettings()))(t)
	s := must.Get((&score.Test{Features: x, Labels: y}).Score(context.Background(), task.Clients(), r, 1))(t)
	if s.Membership != nil {
		t.Errorf("second moments have a membership of class means: %v", *s.Membership)
	}
}

// TestAbsent: scores on classes that no client holds are those of their points alone; without a
// latent FMP is one head.
func TestAbsent(t *testing.T) {
	const dx, c, tasks = 6, 4, 10
	ctx := context.Background()
	w := newWorld(1, dx, c, 3)
	x, y := w.draw(rng.New(2, "test"), 400)
	test := &score.Test{Features: x, Labels: y}
	for seed := range uint64(tasks) {
		in := w.input(t, seed+1, 1, 2)
		held := map[int]bool{}
		_, labels := in.Clients[0].Labelled()
		for _, l := range labels {
			held[l] = true
		}
		for _, none := range []bool{false, true} {
			in.NoLatent = none
			task := newTestTask(t, in)
			r := must.Get(fmp.Run(ctx, task, DefaultSettings()))(t)
			if got := len(r.Ensembles[0]); none != (got == 1) {
				t.Fatalf("without a latent %v: %d heads", none, got)
			}
			s := must.Get(test.Score(ctx, task.Clients(), r, 1))(t)
			rows := must.Get(r.Rows(ctx, x))(t)
			p := must.Get(metric.Predict(ctx, r.Ensembles[0], rows, 1))(t)
			n, nll := 0, 0.0
			for i, l := range y {
				if !held[l] {
					n++
					nll -= math.Log(p.Row(i)[l])
				}
			}
			if s.Absent == nil || s.Absent.Classes != c-len(held) || s.Absent.Points != n ||
				math.Abs(s.Absent.NLL-nll/float64(n)) > 1e-6 {
				t.Fatalf("absent %+v; want %d classes, %d points, NLL %v", s.Absent, c-len(held),
					n, nll/float64(n))
			}
		}
	}
	task := newTestTask(t, w.input(t, 1, 4, 60))
	r := must.Get(fmp.Run(ctx, task, DefaultSettings()))(t)
	if s, err := test.Score(ctx, task.Clients(), r, 1); err != nil || s.Absent != nil {
		t.Errorf("every class is held: %+v, %v", s.Absent, err)
	}
}

// TestAssign: the assignment costs as little as the best of all that there are.
func TestAssign(t *testing.T) {
	r := rng.New(1, "assign")
	for _, size := range [][2]int{{1, 1}, {1, 4}, {3, 3}, {4, 6}, {6, 6}, {5, 8}} {
		for range 20 {
			cost := make([][]float64, size[0])
			for i := range cost {
				cost[i] = make([]float64, size[1])
				if r.IntN(4) == 0 {
					continue // a row to which all columns are equal
				}
				for j := range cost[i] {
					cost[i][j] = r.Float64() * 10
				}
			}
			got, used := 0.0, map[int]bool{}
			for i, j := range assign(cost) {
				got += cost[i][j]
				used[j] = true
			}
			if len(used) != size[0] {
				t.Fatalf("%v: %d columns for %d rows", size, len(used), size[0])
			}
			if want := cheapest(cost, map[int]bool{}); math.Abs(got-want) > 1e-9 {
				t.Errorf("%v: cost %v, want %v", size, got, want)
			}
		}
	}
}

// cheapest tries every assignment.
func cheapest(cost [][]float64, used map[int]bool) float64 {
	if len(cost) == 0 {
		return 0
	}
	best := math.Inf(1)
	for j, v := range cost[0] {
		if !used[j] {
			used[j] = true
			best = math.Min(best, v+cheapest(cost[1:], used))
			delete(used, j)
		}
	}
	return best
}

// TestCorpusOnly: classes that the task calls otherwise than the corpus are named by the clients'
// points, and then the corpus' classifier answers for them, also where a client holds one class
// only.
func TestCorpusOnly(t *testing.T) {
	const dx, c = 4, 4
	r := rng.New(2, "corpus")
	draw := func(class int) []float32 {
		x := make([]float32, dx)
		rng.Normal(r, x)
		x[class] += 6
		return x
	}
	var known []float32
	var labels []int
	for i := range 400 {
		known, labels = append(known, draw(i%c)...), append(labels, i%c)
	}
	k := must.Get(NewCorpus(known, dx, labels, c))(t)
	names := []int{2, 0, 3, 1} // the corpus class that the task's class is
	in := Input{Corpus: k, Seed: 1, Stream: "task"}
	for class, name := range names {
		set := must.Get(point.FromLabelled(append(draw(name), draw(name)...), dx, []int{class, class}, c))(t)
		in.Clients = append(in.Clients, set)
	}
	task := must.Get(NewTask(in))(t)
	res := must.Get(corpusOnly.Run(context.Background(), task, DefaultSettings()))(t)
	var x []float32
	var y []int
	for i := range 200 {
		x, y = append(x, draw(names[i%c])...), append(y, i%c)
	}
	s := evaluated(t, res, x, y)
	if s.ACC < 0.97 {
		t.Errorf("accuracy is %v; want nearly 1", s.ACC)
	}
}

// TestPrivateRounds: the noise is where the budget says, rows are the same again for a seed, and
// the posterior that knows it does better than one that does not where there is much.
func TestPrivateRounds(t *testing.T) {
	w := newWorld(1, 16, 10, 5)
	x, y := w.draw(rng.New(3, "test"), 1000)
	in := w.input(t, 2, 20, 20)
	run := func(name string, b privacy.Budget) (*posterior.Result, float64) {
		t.Helper()
		in.Privacy = &b
		m := must.Get(Lookup(name))(t)
		r := must.Get(m.Run(context.Background(), newTestTask(t, in), DefaultSettings()))(t)
		return r, evaluated(t, r, x, y).NLL
	}
	b := *in.Privacy
	b.Epsilon = 1
	first, aware := run("FMP-DP", b)
	again, _ := run("FMP-DP", b)
	if !slices.Equal(first.Ensembles[0][7].W, again.Ensembles[0][7].W) {
		t.Error("the same seed gives other heads")
	}
	if first.Diagnostics["epsilon"] != 1 || math.Abs(first.Diagnostics["sigma"]-3.73) > 0.01 {
		t.Errorf("account %v", first.Diagnostics)
	}
	_, plugin := run("FMP-DP-plugin", b)
	if aware > plugin {
		t.Errorf("NLL of the posterior that knows the noise %.3f, of the other %.3f", aware, plugin)
	}
	weak := b
	weak.Epsilon = 20
	if _, nll := run("FMP-DP", weak); nll > aware {
		t.Errorf("NLL %.3f at epsilon 20, %.3f at 1", nll, aware)
	}
	task := newTestTask(t, in)
	for noise, want := range map[string]int{privacy.Trusted: 1, privacy.TwoServers: 2, privacy.Local: 20} {
		b.Noise, task.memo = noise, &memo.Memo{}
		task.in.Privacy = &b
		totals, account, err := task.released(context.Background())
		if err != nil || account.Releases != want {
			t.Fatalf("%s: noise in %d releases, want %d; %v", noise, account.Releases, want, err)
		}
		step := in.Private.Clip() / privacy.Steps * float64(account.Deviation)
		if got := totals.SumVariance / (step * step); math.Abs(got-float64(want)) > 1e-9 {
			t.Errorf("%s: variance %v, want %d", noise, got, want)
		}
	}
	b.Noise, b.Unit = privacy.Trusted, privacy.Client
	if _, nll := run("FMP-DP", b); math.IsNaN(nll) {
		t.Error("no NLL for a whole client")
	}
	if _, nll := run("FedPFT-DP", b); math.IsNaN(nll) {
		t.Error("no NLL for FedPFT-DP")
	}
}
