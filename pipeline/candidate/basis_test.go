package candidate

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
)

// scatterOf returns the covariance of Gaussian rows whose coordinates have given deviations.
func scatterOf(r *rand.Rand, rows int, sd []float64) []float64 {
	k := len(sd)
	w := make([]float64, k*k)
	for range rows {
		x := make([]float64, k)
		for j, s := range sd {
			x[j] = s * r.NormFloat64()
		}
		for i := range k {
			axpy(x[i]/float64(rows), x, w[i*k:][:k])
		}
	}
	return w
}

// precision returns the inverse of a target's matrix, R'R.
func (t *target) precision() []float64 {
	out := make([]float64, t.k*t.k)
	for a := t.inverse; len(a) > 0; a = a[t.k:] {
		for i, v := range a[:t.k] {
			axpy(v, a[:t.k], out[i*t.k:][:t.k])
		}
	}
	return out
}

// distance is the Kullback-Leibler divergence of N(0, T) from N(0, diag(sd^2)), in nats.
func (t *target) distance(sd []float64) (d float64) {
	p := t.precision()
	for i, s := range sd {
		d += (s*s*p[i*t.k+i] - 1 - 2*math.Log(s)) / 2
	}
	logDet, _ := mat.LogDet(mat.NewDense(t.k, t.k, p))
	return d - logDet/2
}

// TestTarget: a covariance of fewer rows than features, whose numbers are rounded as an upload in
// int8 rounds them, has negative directions, and the target of the covariance that is nearest.
func TestTarget(t *testing.T) {
	const k, rows, step = 40, 20, 1.0 / 127
	sd := make([]float64, k)
	for i := range sd {
		sd[i] = 1
	}
	w := scatterOf(rng.New(1, "target"), rows, sd)
	for i, v := range w {
		w[i] = step * math.Round(v/step)
	}
	rounded := must.Get(newTarget("rounded", w, rows, k))(t)
	nearest := moment.WithoutNegative(mat.NewSymDense(k, w)).RawSymmetric().Data
	mirror(nearest, k)
	of := must.Get(newTarget("nearest", nearest, rows, k))(t)
	near(t, "precision", rounded.precision(), of.precision(), 1e-3)
	must.Fail(newTarget("zeros", make([]float64, k*k), rows, k))(
		t, "",
		"a covariance of zeros has a target")

}

// TestTargetOfFewImages: the prior about a multiple of the identity is as strong as the images are
// few and the variances alike, so that the target is nearer to the truth than any share of one size
// for all is.
func TestTargetOfFewImages(t *testing.T) {
	const k = 60
	alike, uneven := make([]float64, k), make([]float64, k)
	for i := range k {
		alike[i], uneven[i] = 1, math.Pow(0.9, float64(i))
	}
	for _, sd := range [][]float64{alike, uneven} {
		for _, rows := range []int{10, 40, 200, 2000} {
			w := scatterOf(rng.New(2, "target", rows), rows, sd)
			own := must.Get(newTarget("own", w, float64(rows), k))(t)
			best := math.Inf(1)
			for _, share := range []float64{1e-3, 0.01, 0.1, 0.3, 0.7, 1} {
				drawn := make([]float64, k*k)
				axpy(1-share, w, drawn)
				for i := range k {
					for j := range k {
						drawn[i*k+i] += share * w[j*k+j] / k
					}
				}
				p := must.Get(newTarget("fixed", drawn, 0, k))(t)
				best = min(best, p.distance(sd))
			}
			if d := own.distance(sd); !(d < 1.3*best+0.1) {
				t.Errorf("%d rows, least deviation %.2g: %.2f nats from the truth; the best share has %.2f", rows, sd[k-1],
					d, best)
			}
		}
	}
	exact := must.Get(newTarget("exact", scatterOf(rng.New(3, "target"), 200, uneven), 0, k))(t)
	many := must.Get(newTarget("many", scatterOf(rng.New(3, "target"), 200, uneven), 1e9, k))(t)
	near(t, "precision", many.precision(), exact.precision(), 1e-3)
}
