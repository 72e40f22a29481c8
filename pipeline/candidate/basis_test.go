package candidate

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
)

// TestTarget: a covariance of fewer rows than features, whose numbers are rounded as an upload in int8
// rounds them, has negative directions, and the target of the covariance that is nearest.
func TestTarget(t *testing.T) {
	const k, rows, step = 40, 20, 1.0 / 127
	r, w := rng.New(1, "target"), make([]float64, k*k)
	for range rows {
		x := make([]float64, k)
		for j := range x {
			x[j] = r.NormFloat64()
		}
		for i := range k {
			axpy(x[i]/rows, x, w[i*k:][:k])
		}
	}
	for i, v := range w {
		w[i] = step * math.Round(v/step)
	}
	rounded := must.Get(newTarget("rounded", w, k))(t)
	nearest := moment.WithoutNegative(mat.NewSymDense(k, w)).RawSymmetric().Data
	mirror(nearest, k)
	// its mean variance is larger
	near(t, "factor", rounded.inverse, must.Get(newTarget("nearest", nearest, k))(t).inverse, 1e-3)
}
