package dense

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// triangle is the size up to which a triangular matrix is not divided. Larger ones are divided into
// halves, whose work is products.
const triangle = 32

// Factor is the Cholesky decomposition A = U'U of a symmetric positive definite matrix.
type Factor struct {
	U blas64.General // upper triangular, zeros below
	// of each block of triangle rows on the diagonal of U, triangle x triangle
	inverse []float64
}

// FactorWork returns how many numbers of workspace [Cholesky] wants for a matrix of n rows. Those
// are the inverses of the blocks on the diagonal: about 32 n numbers.
func FactorWork(n int) int { return (n + triangle - 1) / triangle * triangle * triangle }

// Cholesky overwrites the symmetric matrix a by U, where a = U'U, and returns the decomposition,
// which shares its memory. It reads the upper triangle of a. It reports false where a is not
// positive definite to the precision of float64; a is lost then. The decomposition lies in work
// where that has [FactorWork] numbers.
//
// It divides the matrix in four (Gustavson 1997), so that all but a part of order 1/n is products.
// It costs n³/3 operations. A caller that gets false may add to the diagonal of a copy and try
// again.
func Cholesky(a blas64.General, work []float64) (Factor, bool) {
	n := a.Rows
	if a.Cols != n {
		panic(fmt.Sprintf("dense: Cholesky decomposition of a matrix of %d x %d", n, a.Cols))
	}
	if cap(work) < FactorWork(n) {
		work = make([]float64, FactorWork(n))
	}
	f := Factor{U: a, inverse: work[:FactorWork(n)]}
	ok := n == 0 || f.factor(0, n)
	for i := range n {
		clear(row64(a, i)[:i])
	}
	return f, ok
}

// block returns rows from i to i+h and columns from j to j+w of a matrix.
func block(a blas64.General, i, h, j, w int) blas64.General {
	return blas64.General{Rows: h, Cols: w, Stride: a.Stride,
		Data: a.Data[min(i*a.Stride+j, len(a.Data)):]}
}

// half divides a range of rows at a multiple of triangle. Blocks on the diagonal then begin at
// multiples of triangle at every level, which inverseOf relies on.
func half(n int) int { return (n/2 + triangle - 1) / triangle * triangle }

// factor replaces rows and columns from to from+n, from which the rows above are taken off, by
// their part of U. With A = [B C; C' D] it takes P'P = B, P'Q = C and R'R = D - Q'Q, so that U = [P
// Q; 0 R].
func (f *Factor) factor(from, n int) bool {
	if n <= triangle {
		return f.leaf(from, n)
	}
	m := half(n)
	if !f.factor(from, m) {
		return false
	}
	right, rest := block(f.U, from, m, from+m, n-m), block(f.U, from+m, n-m, from+m, n-m)
	f.forward(from, right)
	takeGram(right, rest)
	return f.factor(from+m, n-m)
}

// leaf factors a block on the diagonal and keeps its inverse. Row by row u_ii = sqrt(a_ii) and u_ij
// = a_ij / u_ii, and the rows below lose u_i'u_i.
func (f *Factor) leaf(from, n int) bool {
	u := block(f.U, from, n, from, n)
	for i := range n {
		x := row64(u, i)
		// So written, NaN is refused too.
		if !(x[i] > 0) || math.IsInf(x[i], 1) {
			return false
		}
		pivot := math.Sqrt(x[i])
		x[i] = pivot
		for j := i + 1; j < n; j++ {
			x[j] /= pivot
		}
		for l := i + 1; l < n; l++ {
			to, by := row64(u, l), x[l]
			for j := l; j < n; j++ {
				to[j] -= by * x[j]
			}
		}
	}
	f.invert(from, n)
	return true
}

// invert sets the inverse of a block of U, V: rows from the last on, of U V = I. V is upper
// triangular as well; its rows are written whole, zeros included.
func (f *Factor) invert(from, n int) {
	u, v := block(f.U, from, n, from, n), f.inverseOf(from, n)
	for i := n - 1; i >= 0; i-- {
		x, to := row64(u, i), row64(v, i)
		clear(to)
		for l := i + 1; l < n; l++ {
			by := x[l]
			for j, b := range row64(v, l)[l:] {
				to[l+j] -= by * b
			}
		}
		to[i] = 1
		for j := i; j < n; j++ {
			to[j] /= x[i]
		}
	}
}

// inverseOf is where the inverse of a block of n rows lies.
func (f *Factor) inverseOf(from, n int) blas64.General {
	return blas64.General{Rows: n, Cols: n, Stride: triangle, Data: f.inverse[from*triangle:]}
}

// takeGram takes a'a off c, at least in its upper triangle. Dividing leaves out the lower blocks:
// about half of the work of one product.
func takeGram(a, c blas64.General) {
	n := c.Rows
	if n <= 4*triangle {
		Gemm(blas.Trans, blas.NoTrans, -1, a, a, 1, c)
		return
	}
	m := half(n)
	left, right := block(a, 0, a.Rows, 0, m), block(a, 0, a.Rows, m, n-m)
	takeGram(left, block(c, 0, m, 0, m))
	Gemm(blas.Trans, blas.NoTrans, -1, left, right, 1, block(c, 0, m, m, n-m))
	takeGram(right, block(c, m, n-m, m, n-m))
}

// forward replaces b by the solution x of T'x = b, for the rows and columns T of U from from on, as
// many as b has. Halves of T' = [P' 0; Q' R'] give P'x = b and then R'y = c - Q'x.
func (f *Factor) forward(from int, b blas64.General) {
	n := b.Rows
	if n <= triangle {
		f.solveLeaf(blas.Trans, from, b)
		return
	}
	m := half(n)
	top, low := block(b, 0, m, 0, b.Cols), block(b, m, n-m, 0, b.Cols)
	f.forward(from, top)
	Gemm(blas.Trans, blas.NoTrans, -1, block(f.U, from, m, from+m, n-m), top, 1, low)
	f.forward(from+m, low)
}

// backward is forward for T x = b.
func (f *Factor) backward(from int, b blas64.General) {
	n := b.Rows
	if n <= triangle {
		f.solveLeaf(blas.NoTrans, from, b)
		return
	}
	m := half(n)
	top, low := block(b, 0, m, 0, b.Cols), block(b, m, n-m, 0, b.Cols)
	f.backward(from+m, low)
	Gemm(blas.NoTrans, blas.NoTrans, -1, block(f.U, from, m, from+m, n-m), low, 1, top)
	f.backward(from, top)
}

// leafColumns is how many columns of a solution are in work at a time: they stay in the first-level
// cache.
const leafColumns = 128

// solveLeaf multiplies b by the inverse of a block. The residual is that of substitution: blocks
// are so small that the errors of an inverse do not add up. A product with the inverse runs in
// vectors, where substitution goes row by row.
func (f *Factor) solveLeaf(t blas.Transpose, from int, b blas64.General) {
	var x [triangle * leafColumns]float64
	for j := 0; j < b.Cols; j += leafColumns {
		part := block(b, 0, b.Rows, j, min(leafColumns, b.Cols-j))
		to := blas64.General{Rows: b.Rows, Cols: part.Cols, Stride: leafColumns, Data: x[:]}
		Gemm(t, blas.NoTrans, 1, f.inverseOf(from, b.Rows), part, 0, to)
		for i := range b.Rows {
			copy(row64(part, i), row64(to, i))
		}
	}
}

// few is the number of columns up to which solutions are taken one by one. Products of so narrow
// matrices leave most of a tile empty.
const few = 4

// SolveHalf overwrites b by U⁻¹b, or by U'⁻¹b where t says so. It takes n² operations a column.
func (f *Factor) SolveHalf(t blas.Transpose, b blas64.General) {
	if b.Rows != f.U.Rows {
		panic(fmt.Sprintf("dense: solution of %d equations for %d right sides of %d rows", f.U.Rows,
			b.Cols, b.Rows))
	}
	switch {
	case b.Rows == 0 || b.Cols == 0:
	case b.Cols <= few:
		u := blas64.Triangular{N: f.U.Rows, Stride: f.U.Stride, Data: f.U.Data, Uplo: blas.Upper,
			Diag: blas.NonUnit}
		blas64.Trsm(blas.Left, t, 1, u, b)
	case t == blas.NoTrans:
		f.backward(0, b)
	default:
		f.forward(0, b)
	}
}

// Solve overwrites b by A⁻¹b. It solves U'y = b and then U x = y, in 2 n² operations a column. The
// decomposition is only read, so that several goroutines may solve by it.
func (f *Factor) Solve(b blas64.General) {
	f.SolveHalf(blas.Trans, b)
	f.SolveHalf(blas.NoTrans, b)
}

// Inverse overwrites U by A⁻¹ = U⁻¹U⁻¹', both triangles, and returns it. The decomposition is lost.
// It works in place, and costs 2 n³/3 operations.
func (f *Factor) Inverse() blas64.General {
	if f.U.Rows == 0 {
		return f.U
	}
	f.invertHalf(0, f.U.Rows)
	squareHalf(f.U)
	for i := range f.U.Rows {
		for j := range i {
			f.U.Data[i*f.U.Stride+j] = f.U.Data[j*f.U.Stride+i]
		}
	}
	return f.U
}

// invertHalf replaces rows and columns from from on of U by those of its inverse: [P Q; 0 R] by
// [P⁻¹, -P⁻¹ Q R⁻¹; 0 R⁻¹]. The order matters: Q is solved by P before P is replaced, and
// multiplied by R⁻¹ after R is.
func (f *Factor) invertHalf(from, n int) {
	if n <= triangle {
		v, u := f.inverseOf(from, n), block(f.U, from, n, from, n)
		for i := range n {
			copy(row64(u, i), row64(v, i))
		}
		return
	}
	m := half(n)
	q := block(f.U, from, m, from+m, n-m)
	f.backward(from, q)
	f.invertHalf(from+m, n-m)
	timesUpper(q, block(f.U, from+m, n-m, from+m, n-m), -1)
	f.invertHalf(from, m)
}

// timesUpper replaces b by alpha b t for the upper triangular t, which has zeros below. The right
// half is done first, since it needs the left half as it was.
func timesUpper(b, t blas64.General, alpha float64) {
	n := t.Rows
	if n <= 2*triangle {
		timesLeaf(blas.NoTrans, b, t, alpha)
		return
	}
	m := half(n)
	left, right := block(b, 0, b.Rows, 0, m), block(b, 0, b.Rows, m, n-m)
	timesUpper(right, block(t, m, n-m, m, n-m), alpha)
	Gemm(blas.NoTrans, blas.NoTrans, alpha, left, block(t, 0, m, m, n-m), 1, right)
	timesUpper(left, block(t, 0, m, 0, m), alpha)
}

// squareHalf replaces the upper triangular t, which has zeros below, by the upper triangle of t t'.
// Of t = [P Q; 0 R] that is [PP' + QQ', QR'; ·, RR'].
func squareHalf(t blas64.General) {
	n := t.Rows
	if n <= 2*triangle {
		var buf [2 * triangle * 2 * triangle]float64
		to := blas64.General{Rows: n, Cols: n, Stride: n, Data: buf[:]}
		Gemm(blas.NoTrans, blas.Trans, 1, t, t, 0, to)
		for i := range n {
			copy(row64(t, i)[i:], row64(to, i)[i:])
		}
		return
	}
	m := half(n)
	squareHalf(block(t, 0, m, 0, m))
	right := block(t, 0, m, m, n-m)
	AddOuter(right, block(t, 0, m, 0, m))
	timesLower(right, block(t, m, n-m, m, n-m))
	squareHalf(block(t, m, n-m, m, n-m))
}

// AddOuter adds a a' to the upper triangle of c, with half of the work of [Gemm], and leaves the
// rest as it is.
func AddOuter(a, c blas64.General) {
	n := c.Rows
	if a.Rows != n || c.Cols != n {
		panic(fmt.Sprintf("dense: product of %d x %d and its transpose into %d x %d", a.Rows,
			a.Cols, n, c.Cols))
	}
	if n == 0 || a.Cols == 0 {
		return
	}
	if n <= 2*triangle {
		var buf [2 * triangle * 2 * triangle]float64
		to := blas64.General{Rows: n, Cols: n, Stride: n, Data: buf[:]}
		Gemm(blas.NoTrans, blas.Trans, 1, a, a, 0, to)
		for i := range n {
			for j := i; j < n; j++ {
				c.Data[i*c.Stride+j] += to.Data[i*n+j]
			}
		}
		return
	}
	m := half(n)
	top, low := block(a, 0, m, 0, a.Cols), block(a, m, n-m, 0, a.Cols)
	AddOuter(top, block(c, 0, m, 0, m))
	Gemm(blas.NoTrans, blas.Trans, 1, top, low, 1, block(c, 0, m, m, n-m))
	AddOuter(low, block(c, m, n-m, m, n-m))
}

// timesLower replaces b by b t' for the upper triangular t, which has zeros below. The left half is
// done first, since it needs the right half as it was.
func timesLower(b, t blas64.General) {
	n := t.Rows
	if n <= 2*triangle {
		timesLeaf(blas.Trans, b, t, 1)
		return
	}
	m := half(n)
	left, right := block(b, 0, b.Rows, 0, m), block(b, 0, b.Rows, m, n-m)
	timesLower(left, block(t, 0, m, 0, m))
	Gemm(blas.NoTrans, blas.Trans, 1, right, block(t, 0, m, m, n-m), 1, left)
	timesLower(right, block(t, m, n-m, m, n-m))
}

// timesLeaf replaces b by alpha b t, or alpha b t'. Rows of b go by way of a buffer, 64 at a time,
// as a product cannot write over its operand.
func timesLeaf(trans blas.Transpose, b, t blas64.General, alpha float64) {
	var buf [2 * triangle * 2 * triangle]float64
	for i := 0; i < b.Rows; i += 2 * triangle {
		part := block(b, i, min(2*triangle, b.Rows-i), 0, t.Rows)
		to := blas64.General{Rows: part.Rows, Cols: t.Rows, Stride: t.Rows, Data: buf[:]}
		Gemm(blas.NoTrans, trans, alpha, part, t, 0, to)
		for r := range part.Rows {
			copy(row64(part, r), row64(to, r))
		}
	}
}
