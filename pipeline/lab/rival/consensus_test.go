package rival

import (
	"context"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distmv"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/posterior"
)

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
