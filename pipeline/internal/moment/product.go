package moment

import (
	"math"
	"runtime"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
)

// together is the number of multiplications from which a product is divided among processors. Its
// bits do not depend on that.
const together = 1 << 24

// Product returns a b, or a b' where flipped is set. It costs n m k multiplications. The operands
// are not changed.
// a is [n, k], b is [k, m], or [m, k] where flipped.
func Product(a, b *mat.Dense, flipped bool) *mat.Dense {
	x, y, t := a.RawMatrix(), b.RawMatrix(), blas.NoTrans
	columns := y.Cols
	if flipped {
		columns, t = y.Rows, blas.Trans
	}
	out := mat.NewDense(x.Rows, columns, nil)
	z := out.RawMatrix()
	rows(x.Rows, x.Rows*x.Cols*columns, func(from, to int) {
		dense.Gemm(blas.NoTrans, t, 1, slice(x, from, to), y, 0, slice(z, from, to))
	})
	return out
}

// Gram returns scale times x'x. Only the upper triangle is multiplied; the lower one is its copy.
// Block of rows r takes columns from r on, about half of the n k^2 multiplications.
func Gram(scale float64, x *mat.Dense) *mat.SymDense {
	a := x.RawMatrix()
	n, k := a.Rows, a.Cols
	out := mat.NewSymDense(k, nil)
	z := out.RawSymmetric()
	c := blas64.General{Rows: k, Cols: k, Stride: z.Stride, Data: z.Data}
	rows(k, n*k*k, func(from, to int) {
		left := blas64.General{Rows: n, Cols: to - from, Stride: a.Stride, Data: a.Data[from:]}
		right := blas64.General{Rows: n, Cols: k - from, Stride: a.Stride, Data: a.Data[from:]}
		dense.Gemm(blas.Trans, blas.NoTrans, scale, left, right, 0,
			blas64.General{Rows: to - from, Cols: k - from, Stride: c.Stride,
				Data: c.Data[from*c.Stride+from:]})
	})
	for i := range k {
		for j := range i {
			c.Data[i*c.Stride+j] = c.Data[j*c.Stride+i]
		}
	}
	return out
}

// block is how many rows of a product are made at a time.
const block = 160

// rows calls do for all of n rows, divided among processors where the work is large. Blocks are the
// same for any number of threads, and so are the bits of a product. Workers take the next block
// from a channel that is closed, and none waits for another.
func rows(n, work int, do func(from, to int)) {
	threads := 1
	if work >= together {
		threads = min(runtime.GOMAXPROCS(0), (n+block-1)/block)
	}
	var wg sync.WaitGroup
	next := make(chan int, (n+block-1)/block)
	for from := 0; from < n; from += block {
		next <- from
	}
	close(next)
	for range threads {
		wg.Go(func() {
			for from := range next {
				do(from, min(from+block, n))
			}
		})
	}
	wg.Wait()
}

// slice returns rows from to to-1, which share their numbers.
func slice(a blas64.General, from, to int) blas64.General {
	return blas64.General{Rows: to - from, Cols: a.Cols, Stride: a.Stride,
		Data: a.Data[from*a.Stride:]}
}

// small is the size up to which Eigen is gonum's, whose eigenvectors have the signs that trained
// predictors began with.
const small = 256

// Eigen returns the eigenvalues of a symmetric matrix, ascending, and its eigenvectors as columns;
// false where they did not converge. It costs O(n^3). The columns are orthonormal.
func Eigen(s *mat.SymDense) ([]float64, *mat.Dense, bool) {
	n := s.SymmetricDim()
	if n <= small {
		var e mat.EigenSym
		if !e.Factorize(s, true) {
			return nil, nil, false
		}
		var u mat.Dense
		e.VectorsTo(&u)
		return e.Values(nil), &u, true
	}
	values, v := dense.Eigen(mat.DenseCopyOf(s).RawMatrix())
	for _, x := range values {
		if x != x {
			return nil, nil, false
		}
	}
	out := mat.NewDense(n, n, nil)
	copy(out.RawMatrix().Data, v.Data)
	return values, out, true
}

// Leading returns the last r columns of q, the last one first: of [Eigen] the eigenvectors of the
// largest eigenvalues, in descending order.
// The columns are copies, and r is at most the number of them.
func Leading(q *mat.Dense, r int) *mat.Dense {
	rows, columns := q.Dims()
	out := mat.NewDense(rows, r, nil)
	for j := range r {
		out.SetCol(j, mat.Col(nil, columns-1-j, q))
	}
	return out
}

// Symmetric returns the symmetric part of a square matrix. It is (A + A')/2.
func Symmetric(a mat.Matrix) *mat.SymDense {
	n, _ := a.Dims()
	out := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			out.SetSym(i, j, (a.At(i, j)+a.At(j, i))/2)
		}
	}
	return out
}

// Shrunk returns a covariance shrunk toward its mean variance, (1 - share) S + share tr(S)/k I.
// The trace stays. A share above 0, up to 1, makes a covariance of positive trace invertible.
func Shrunk(s mat.Symmetric, share float64) *mat.SymDense {
	k := s.SymmetricDim()
	out := mat.NewSymDense(k, nil)
	out.ScaleSym(1-share, s)
	mean := mat.Trace(s) / float64(k)
	for j := range k {
		out.SetSym(j, j, out.At(j, j)+share*mean)
	}
	return out
}

// Triangle returns the upper triangle of a matrix, [k, k], row by row.
// Row i has k - i numbers, from the diagonal on.
func Triangle(a []float64, k int) []float32 {
	out := make([]float32, 0, k*(k+1)/2)
	for i := range k {
		out = append(out, dense.As[float32](a[i*k+i:(i+1)*k])...)
	}
	return out
}

// WithoutNegative returns the covariance nearest to s: its negative eigenvalues are 0 (Higham
// 1988). Where the eigenvalues do not converge it is s itself. It is the nearest in the Frobenius
// norm, U diag(max(lambda, 0)) U'.
func WithoutNegative(s *mat.SymDense) *mat.SymDense {
	values, vectors, ok := Eigen(s)
	if !ok {
		return s
	}
	var root mat.Dense
	root.Apply(func(_, j int, x float64) float64 { return x * math.Sqrt(max(values[j], 0)) },
		vectors)
	out := mat.NewSymDense(s.SymmetricDim(), nil)
	out.SymOuterK(1, &root)
	return out
}

// Orthonormal returns Q [n, k] of the decomposition a = QR of n rows and k <= n columns, in a's
// place: mat.QR would form all n columns. It costs O(n k^2), by Householder reflections.
func Orthonormal(a *mat.Dense) *mat.Dense {
	m := a.RawMatrix()
	tau, size := make([]float64, m.Cols), make([]float64, 1)
	lapack64.Geqrf(m, tau, size, -1)
	work := make([]float64, int(size[0]))
	lapack64.Geqrf(m, tau, work, len(work))
	lapack64.Orgqr(m, tau, size, -1)
	work = make([]float64, int(size[0]))
	lapack64.Orgqr(m, tau, work, len(work))
	return a
}
