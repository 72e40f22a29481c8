package kernel

import (
	"fmt"
	"math"

	"fmp/onnx/internal/try"
)

// Det: x [..., n, n]; out [...] = det x, by elimination with row exchanges in float64 (Golub and
// Van Loan, Matrix Computations, algorithm 3.4.1). The determinant of a matrix of no rows is 1.
func newDet(s *Spec) (Kernel, error) {
	return numeric(s, determinants[float32], determinants[float64])
}

// determinants gives each matrix to one thread, which keeps one copy of n² float64 for all of its
// own: O(n³) a matrix.
func determinants[T floating](c *Call) error {
	in := c.In[0].Shape
	r := len(in)
	if r < 2 || in[r-1] != in[r-2] {
		return fmt.Errorf("a tensor of shape %v is not of square matrices", in)
	}
	n := in[r-1]
	out := try.Get(c.New(0, c.In[0].DType, in[:r-2]))
	x, y := data[T](c.In[0]), data[T](out)
	c.Parallel(len(y), work(n, n, n), func(lo, hi int) {
		a := make([]float64, n*n)
		for m := lo; m < hi; m++ {
			for i := range a {
				a[i] = float64(x[m*n*n+i])
			}
			y[m] = T(determinant(a, n))
		}
	})
	return nil
}

// determinant overwrites a, n rows of n. It is the product of the pivots, with its sign changed for
// every exchange of rows. Each pivot is the largest left in its column, which keeps the factors f
// within -1..1. It takes about n³/3 multiplications: Gaussian elimination with partial pivoting.
func determinant(a []float64, n int) float64 {
	det := 1.0
	for k := range n {
		p := k
		for i := k + 1; i < n; i++ {
			if math.Abs(a[i*n+k]) > math.Abs(a[p*n+k]) {
				p = i
			}
		}
		// The largest is 0, so the column is: the matrix is singular.
		pivot := a[p*n+k]
		if pivot == 0 {
			return 0
		}
		if p != k {
			det = -det
			for j := k; j < n; j++ {
				a[p*n+j], a[k*n+j] = a[k*n+j], a[p*n+j]
			}
		}
		det *= pivot
		for i := k + 1; i < n; i++ {
			f := a[i*n+k] / pivot
			// The column below the pivot is not written, since it is not read again.
			for j := k + 1; j < n; j++ {
				a[i*n+j] -= f * a[k*n+j]
			}
		}
	}
	return det
}
