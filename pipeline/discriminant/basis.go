package discriminant

import (
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx"
)

// RandomBasis returns k orthonormal directions of dx, [dx, k], drawn uniformly from a stream of seed.
func RandomBasis(dx, k int, seed uint64) *onnx.Tensor {
	noise := make([]float32, dx*k)
	rng.Normal(rng.New(seed, "moments", "basis"), noise)
	a := mat.NewDense(dx, k, nil)
	for i, v := range noise {
		a.RawMatrix().Data[i] = float64(v)
	}
	var qr mat.QR
	qr.Factorize(a)
	var q mat.Dense
	qr.QTo(&q)
	out := onnx.ZerosF32(dx, k)
	for i := range dx {
		for j := range k {
			out.F32()[i*k+j] = float32(q.At(i, j))
		}
	}
	return out
}
