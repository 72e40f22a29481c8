package candidate

import (
	"context"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/parallel"
)

// axpy, scale and dot are those of BLAS on whole slices: y += a x, x *= a, and a'b. Slices of two
// lengths panic.
func axpy(a float64, x, y []float64) { floats.AddScaled(y, a, x) }
func scale(a float64, x []float64)   { floats.Scale(a, x) }
func dot(a, b []float64) float64     { return floats.Dot(a, b) }

// times returns a b, [n, m], of a, [n, k], and b, [k, m].
// Matrices of this package are row-major slices. It costs n k m multiplications.
func times(a, b []float64, n, k, m int) []float64 {
	out := make([]float64, n*m)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, dense.General(n, k, a), dense.General(k, m, b), 0,
		dense.General(n, m, out))
	return out
}

// timesT returns a b', [n, m], of a, [n, k], and b, [m, k].
func timesT(a, b []float64, n, k, m int) []float64 {
	out := make([]float64, n*m)
	dense.Gemm(blas.NoTrans, blas.Trans, 1, dense.General(n, k, a), dense.General(m, k, b), 0,
		dense.General(n, m, out))
	return out
}

// each calls do for 0 to n-1 on at most threads goroutines. Each call writes to places of its own:
// figures do not depend on threads.
func each(n, threads int, do func(i int) error) error {
	return parallel.Each(context.Background(), max(threads, 1), n,
		func(_ context.Context, i int) error { return do(i) })
}

// trace returns that of a matrix, [n, n].
func trace(a []float64, n int) (sum float64) {
	for i := range n {
		sum += a[i*n+i]
	}
	return sum
}
