package rival

import (
	"context"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/posterior"
)

// probabilities are what a result says of rows.
func probabilities(t *testing.T, r *posterior.Result, x []float32) *metric.Probabilities {
	t.Helper()
	rows := must.Get(r.Rows(context.Background(), x))(t)
	return must.Get(metric.Predict(context.Background(), r.Ensembles[0], rows, 1))(t)
}

// softmaxOf are class probabilities of log-densities.
func softmaxOf(log []float64) []float64 {
	out := make([]float64, len(log))
	var sum float64
	for c, v := range log {
		out[c] = math.Exp(v - log[0])
		sum += out[c]
	}
	for c := range out {
		out[c] /= sum
	}
	return out
}

// logNormal is the log-density of N(mean, cov), but for a constant.
func logNormal(t *testing.T, x, mean []float64, cov mat.Symmetric) float64 {
	t.Helper()
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		t.Fatal("covariance is not positive definite")
	}
	d := mat.NewVecDense(len(x), nil)
	d.SubVec(mat.NewVecDense(len(x), x), mat.NewVecDense(len(x), mean))
	var solved mat.VecDense
	must.Do(t, chol.SolveVecTo(&solved, d))
	return -mat.Dot(d, &solved)/2 - chol.LogDet()/2
}

// near compares probabilities with log-densities written out.
func near(t *testing.T, what string, p *metric.Probabilities, x []float32,
	log func(x []float64) []float64) {
	t.Helper()
	dx := len(x) / p.N
	for i := range p.N {
		row := make([]float64, dx)
		for j, v := range x[i*dx : (i+1)*dx] {
			row[j] = float64(v)
		}
		want := softmaxOf(log(row))
		for c, v := range p.Row(i) {
			if math.Abs(v-want[c]) > 1e-4 {
				t.Fatalf("%s: point %d, class %d: probability %v, written out %v", what,
					i, c, v, want[c])
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
	within := shrunk(k.Within, s.Shrinkage)
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
	near(t, "PLDA", probabilities(t, run(plda), x), x, func(x []float64) (log []float64) {
		for y := range c {
			log = append(log, logNormal(t, x, posteriorMeans[y], predictive[y]))
		}
		return log
	})
	near(t, "LDA", probabilities(t, run(lda), x), x, func(x []float64) (log []float64) {
		for y := range c {
			log = append(log, logNormal(t, x, posteriorMeans[y], within))
		}
		return log
	})
	isotropic := shrunk(k.Within, 1)
	near(t, "NCM", probabilities(t, run(ncm), x), x, func(x []float64) (log []float64) {
		for y := range c {
			log = append(log, logNormal(t, x, means.RawRowView(y), isotropic))
		}
		return log
	})
	near(t, "GH-QDA", probabilities(t, run(ghqda), x), x, func(x []float64) (log []float64) {
		for y := range c {
			var rows []float64
			n := 0
			for _, set := range in.Clients {
				for i := range set.N {
					if row := set.Row(i); row[dx+y] == 1 {
						for _, v := range row[:dx] {
							rows = append(rows, float64(v))
						}
						n++
					}
				}
			}
			cov := mat.NewSymDense(dx, nil)
			centred := mat.NewDense(n, dx, rows)
			for i := range n {
				for j := range dx {
					centred.Set(i, j, centred.At(i, j)-means.At(y, j))
				}
			}
			cov.SymOuterK(1/float64(n), centred.T())
			log = append(log, logNormal(t, x, means.RawRowView(y), shrunk(cov, s.Shrinkage))+
				math.Log(stats.count[y]+0.5))
		}
		return log
	})
}

// TestLatent: in its coordinates W is I and B diagonal.
func TestLatent(t *testing.T) {
	w := newWorld(1, 6, 5, 3)
	x, y := w.draw(rng.New(3, "corpus"), 400)
	k := must.Get(NewCorpus(x, 6, y, 5))(t)
	l := must.Get(k.latent(0.1))(t)
	for name, s := range map[string]mat.Symmetric{"within": shrunk(k.Within, 0.1), "between": k.Between} {
		var half, whole mat.Dense
		half.Mul(s, l.v)
		whole.Mul(l.v.T(), &half)
		for i := range 6 {
			for j := range 6 {
				want := 0.0
				if i == j {
					if want = 1; name == "between" {
						want = max(whole.At(i, i), 0)
						if math.Abs(want-l.beta[i]) > 1e-9 {
							t.Errorf("beta %d is %v, V'BV %v", i, l.beta[i], want)
						}
						continue
					}
				}
				if math.Abs(whole.At(i, j)-want) > 1e-9 {
					t.Errorf("%s: V'SV is %v at %d,%d; want %v", name, whole.At(i, j), i, j, want)
				}
			}
		}
	}
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
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
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
		s := must.Get(score.Evaluate(context.Background(), Cooled(res, temperature), x, y, 1))(t)
		if math.Abs(s.NLL-nll) > 1e-5 {
			t.Errorf("NLL at the temperature is %v, the search found %v", s.NLL, nll)
		}
	}
	if cooled := probabilities(t, Cooled(res, 3), x); math.Abs(cooled.P[5]-p.P[5]) > 1e-12 ||
		large[0].W[0] != 3*right[0].W[0] {
		t.Error("heads divided by 3 do not predict as before, or were changed in place")
	}
}
