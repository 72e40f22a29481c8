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

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// rowMoments of an ensemble: the mean and covariance of its D C numbers.
func rowMoments(e posterior.Ensemble) ([]float64, *mat.SymDense) {
	x := mat.NewDense(len(e), len(e[0].W), nil)
	for i := range e {
		x.SetRow(i, e[i].W)
	}
	return weighted(x, nil)
}

// weighted are the mean and covariance of weighted rows.
func weighted(x *mat.Dense, weights []float64) ([]float64, *mat.SymDense) {
	mean := make([]float64, x.RawMatrix().Cols)
	for j := range mean {
		mean[j] = stat.Mean(mat.Col(nil, j, x), weights)
	}
	var cov mat.SymDense
	stat.CovarianceMatrix(&cov, x, weights)
	return mean, &cov
}

// furthestMoments is the largest difference of an ensemble's means and of its covariances from
// those given, in units of the standard deviations given.
func furthestMoments(e posterior.Ensemble, mean []float64,
	cov mat.Symmetric) (means, covariances float64) {
	gotMean, gotCov := rowMoments(e)
	for i := range mean {
		means = math.Max(means, math.Abs(gotMean[i]-mean[i])/math.Sqrt(cov.At(i, i)))
		for j := range mean {
			covariances = math.Max(covariances,
				math.Abs(gotCov.At(i, j)-cov.At(i, j))/math.Sqrt(cov.At(i, i)*cov.At(j, j)))
		}
	}
	return means, covariances
}

// compareMoments allows furthestMoments a tolerance, and returns that of the means.
func compareMoments(t *testing.T, what string, e posterior.Ensemble, mean []float64,
	cov mat.Symmetric, tolerance float64) float64 {
	t.Helper()
	m, c := furthestMoments(e, mean, cov)
	t.Logf("%s: means within %.3f, covariances within %.3f standard deviations", what, m, c)
	if m > tolerance || c > tolerance {
		t.Errorf("%s: means differ by up to %.3f and covariances by up to %.3f standard deviations; "+
			"want at most %v", what, m, c, tolerance)
	}
	return m
}

// importance is the exact posterior's mean and covariance, by weighting draws of the prior with the
// likelihood.
func importance(set *point.Set, precision float64, draws int) ([]float64, *mat.SymDense) {
	r := rng.New(9, "importance")
	d, c := set.Dx+1, set.C
	x := mat.NewDense(draws, d*c, nil)
	weights := make([]float64, draws)
	for k := range draws {
		theta := x.RawRowView(k)
		for i := range theta {
			theta[i] = r.NormFloat64() / math.Sqrt(precision)
		}
		var log float64
		for i := range set.N {
			row := set.Row(i)
			l := append([]float64(nil), theta[set.Dx*c:]...)
			var sum, fit float64
			for j := range l {
				for f, v := range row[:set.Dx] {
					l[j] += float64(v) * theta[f*c+j]
				}
				sum += math.Exp(l[j])
				fit += float64(row[set.Dx+j]) * l[j]
			}
			log += float64(set.W[i]) * (fit - math.Log(sum))
		}
		weights[k] = math.Exp(log)
	}
	floats.Scale(float64(draws)/floats.Sum(weights), weights)
	return weighted(x, weights)
}

// TestHMCFindsExactPosterior on problems with fewer points than features (where part of the head is
// drawn from the prior) and with more.
func TestHMCFindsExactPosterior(t *testing.T) {
	for _, k := range []struct {
		name      string
		n, dx, c  int
		precision float64
	}{{"fewer points than features", 4, 6, 3, 0.5}, {"more points than features", 10, 2, 3, 1}} {
		w := newWorld(4, k.dx, k.c, 2)
		in := w.input(t, 5, 1, k.n)
		in.Clients[0].W[0] = 1.7
		in.Samples = 4000
		task := newTestTask(t, in)
		s := DefaultSettings()
		s.Draws, s.Warmup = 2000, 300
		e, d := must.Get2(task.pooledGaussianPosterior(context.Background(), k.precision, s))(t)
		mean, cov := importance(in.Clients[0], k.precision, 400_000)
		exactMean := compareMoments(t, k.name, e, mean, cov, 0.12)
		if !(d["rhat"] < 1.05) || d["acceptance"] < 0.6 || d["acceptance"] > 0.98 ||
			d["divergences"] > 0 {
			t.Errorf("%s: diagnostics %v; want R-hat below 1.05, acceptance of 0.6 to 0.98, no divergence",
				k.name, d)
		}
		s.Sampler = Laplace
		l, d := must.Get2(task.pooledGaussianPosterior(context.Background(), k.precision, s))(t)
		if d != nil {
			t.Errorf("Laplace has diagnostics %v; it runs no chain", d)
		}
		// So little data leaves the posterior skewed: its mean is not its mode, and Laplace must be
		// further off.
		if m, _ := furthestMoments(l, mean, cov); m < 2*exactMean {
			t.Errorf("%s: means of Laplace are within %.3f standard deviations of the exact ones, those "+
				"of HMC within %.3f", k.name, m, exactMean)
		}
	}
}

// TestHMCAndLaplaceAgreeWhereThePosteriorIsGaussian: with much data both have the inverse Hessian
// as covariance.
func TestHMCAndLaplaceAgreeWhereThePosteriorIsGaussian(t *testing.T) {
	w := newWorld(4, 3, 3, 1)
	in := w.input(t, 5, 1, 100)
	for i := range in.Clients[0].W {
		in.Clients[0].W[i] = 100
	}
	in.Samples = 3000
	task := newTestTask(t, in)
	s := DefaultSettings()
	s.Draws = 1500
	fit := must.Get(task.pooledFit(context.Background(), 1, s))(t)
	p := must.Get(erm.FromSets(1, in.Clients[0]))(t)
	h := erm.NewObjective(p).Hessian(mat.DenseCopyOf(mat.NewDense(fit.D, fit.C, fit.W).T()).RawMatrix().Data)
	var chol mat.Cholesky
	if !chol.Factorize(h) {
		t.Fatal("the Hessian is not positive definite")
	}
	var inverse mat.SymDense
	must.Do(t, chol.InverseTo(&inverse))
	// From one class a row, which Objective has, to one class a column, which Theta has.
	cov := mat.NewSymDense(fit.D*fit.C, nil)
	at := func(i int) int { return i%fit.C*fit.D + i/fit.C }
	for i := range fit.D * fit.C {
		for j := i; j < fit.D*fit.C; j++ {
			cov.SetSym(i, j, inverse.At(at(i), at(j)))
		}
	}
	for _, sampler := range []string{Laplace, HMC} {
		s.Sampler = sampler
		e, _ := must.Get2(task.pooledGaussianPosterior(context.Background(), 1, s))(t)
		compareMoments(t, sampler, e, fit.W, cov, 0.12)
	}
}

func TestSplitRHat(t *testing.T) {
	r := rng.New(1, "rhat")
	same, apart := [][]float64{normal(r, 1000), normal(r, 1000)},
		[][]float64{normal(r, 1000), normal(r, 1000)}
	trend := [][]float64{normal(r, 1000), normal(r, 1000)}
	for i := range apart[0] {
		apart[0][i] += 2
		for _, c := range trend {
			c[i] += 4 * float64(i) / 1000
		}
	}
	if v := splitRHat(same); v > 1.02 {
		t.Errorf("R-hat of two chains of one distribution is %v", v)
	}
	if v := splitRHat(apart); v < 1.3 {
		t.Errorf("R-hat of chains that lie apart is %v", v)
	}
	if v := splitRHat(trend); v < 1.2 {
		t.Errorf("R-hat of chains that move is %v", v)
	}
	if v := splitRHat([][]float64{{1, 1, 1, 1}, {1, 1, 1, 1}}); v != 1 {
		t.Errorf("R-hat of equal constants is %v", v)
	}
}

// TestConsensusIsExactForGaussians: samples of N(mu_m, P_m^-1) combine to N(P^-1 sum P_m mu_m,
// P^-1), P = sum P_m.
func TestConsensusIsExactForGaussians(t *testing.T) {
	const dim, clients, samples = 4, 3, 20000
	for _, covariance := range []string{Diagonal, Full} {
		r := rng.New(6, covariance)
		total := mat.NewSymDense(dim, nil)
		shift := mat.NewVecDense(dim, nil)
		var locals []posterior.Ensemble
		for range clients {
			p := mat.NewSymDense(dim, nil)
			for j := range dim {
				p.SetSym(j, j, 0.5+2*r.Float64())
			}
			if covariance == Full {
				p.SymRankOne(p, 1, mat.NewVecDense(dim, normal(r, dim)))
			}
			mu := mat.NewVecDense(dim, normal(r, dim))
			var weighted mat.VecDense
			weighted.MulVec(p, mu)
			shift.AddVec(shift, &weighted)
			total.AddSym(total, p)
			own, ok := distmv.NewNormalPrecision(mu.RawVector().Data, p, r)
			if !ok {
				t.Fatal("precision is not positive definite")
			}
			e := make(posterior.Ensemble, samples)
			for i := range e {
				e[i] = posterior.Theta{D: 2, C: 2, W: own.Rand(nil)}
			}
			locals = append(locals, e)
		}
		var chol mat.Cholesky
		if !chol.Factorize(total) {
			t.Fatal("precision is not positive definite")
		}
		var cov mat.SymDense
		must.Do(t, chol.InverseTo(&cov))
		var mean mat.VecDense
		must.Do(t, chol.SolveVecTo(&mean, shift))
		e := must.Get(consensus(context.Background(), locals,
			Settings{Covariance: covariance, Weighting: 1}))(t)
		// The clients' precisions are themselves estimates, good to 1/sqrt(samples) times the
		// distance of the means.
		compareMoments(t, covariance, e, mean.RawVector().Data, &cov, 0.1)
	}
}

// TestShrunkPrecision compares the shortcuts with Ledoit and Wolf's formulas written out.
func TestShrunkPrecision(t *testing.T) {
	for _, k := range [][2]int{{6, 9}, {30, 5}, {3, 20}} {
		n, p := k[0], k[1]
		x := mat.NewDense(n, p, normal(rng.New(7, n, p), n*p))
		for i := range n {
			x.Set(i, 0, 3*x.At(i, 0)+1)
			x.Set(i, 1, x.At(i, 0)+0.3*x.At(i, 1))
		}
		got := must.Get(shrunkPrecision(x))(t)
		var s mat.SymDense
		stat.CovarianceMatrix(&s, x, nil)
		s.ScaleSym(float64(n-1)/float64(n), &s)
		mu := mat.Trace(&s) / float64(p)
		norm := func(m mat.Matrix) float64 { v := mat.Norm(m, 2); return v * v }
		var off mat.Dense
		off.Sub(&s, mat.NewDiagDense(p, slices.Repeat([]float64{mu}, p)))
		var b2 float64
		for i := range n {
			v := mat.NewVecDense(p, nil)
			for j := range p {
				v.SetVec(j, x.At(i, j)-stat.Mean(mat.Col(nil, j, x), nil))
			}
			var one mat.Dense
			one.Outer(1, v, v)
			one.Sub(&one, &s)
			b2 += norm(&one) / float64(n*n)
		}
		r := math.Min(b2/norm(&off), 1)
		if r <= 0 || r >= 1 {
			t.Fatalf("%d x %d: shrinkage is %v; the case should lie inside (0, 1)", n, p, r)
		}
		var product mat.Dense
		product.Mul(got, moment.Shrunk(&s, r))
		if !mat.EqualApprox(&product, identity(p), 1e-8) {
			t.Fatalf("%d x %d: precision times covariance is\n%v", n, p, mat.Formatted(&product))
		}
	}
}
