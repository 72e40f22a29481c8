package dense

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	lapack "gonum.org/v1/gonum/lapack/gonum"
)

// Columns that are reduced, and put back, between two products with the rest of the matrix.
const (
	reflectors = 32
	together   = 96
)

// leaf is the size up to which a tridiagonal matrix is not divided.
const leaf = 32

// Eigen returns the eigenvalues of the symmetric matrix a in ascending order, and eigenvectors as
// the columns of an orthogonal matrix. It overwrites a, of which it reads the upper triangle.
//
// Blocked Householder reflections make the matrix tridiagonal (Dongarra, Hammarling and Sorensen
// 1989); that is divided, and the halves' solutions are joined by the roots of a secular equation
// (Cuppen 1981; Gu and Eisenstat 1995). Three quarters of the work are products. It costs O(n³),
// and memory of about 4 n² numbers beside a.
func Eigen(a blas64.General) (values []float64, vectors blas64.General) {
	n := a.Rows
	if a.Cols != n {
		panic(fmt.Sprintf("dense: eigenvalues of a matrix of %d x %d", n, a.Cols))
	}
	if n == 0 {
		return nil, a
	}
	t := &tridiagonal{a: a, d: make([]float64, n), e: make([]float64, max(n-1, 0)),
		tau: make([]float64, n)}
	for j := 0; j < n; j += reflectors {
		t.reduce(j, min(j+reflectors, n))
	}
	// The deflation of [divide] compares eigenvalues with entries of unit vectors: the largest
	// number is scaled to 1/2 to 1, by a power of two, which is exact.
	var most float64
	for _, x := range [][]float64{t.d, t.e} {
		for _, v := range x {
			most = max(most, math.Abs(v))
		}
	}
	_, exponent := math.Frexp(most)
	for _, x := range [][]float64{t.d, t.e} {
		for i, v := range x {
			x[i] = math.Ldexp(v, -exponent)
		}
	}
	vectors = zeros(n, n)
	divide(t.d, t.e, vectors, newScratch(n))
	for i, v := range t.d {
		t.d[i] = math.Ldexp(v, exponent)
	}
	t.back(vectors)
	return t.d, vectors
}

// tridiagonal is the state of a reduction: rows and columns before that in hand have their
// reflectors in the rows of a, beyond the diagonal.
type tridiagonal struct {
	a    blas64.General
	d, e []float64
	tau  []float64
}

// row64 is row i of a matrix, in its memory.
func row64(a blas64.General, i int) []float64 { return a.Data[i*a.Stride : i*a.Stride+a.Cols] }

// zeros is a new matrix.
func zeros(rows, cols int) blas64.General {
	return blas64.General{Rows: rows, Cols: cols, Stride: max(cols, 1),
		Data: make([]float64, rows*cols)}
}

// vec is numbers as BLAS takes them.
func vec(x []float64) blas64.Vector { return blas64.Vector{N: len(x), Data: x, Inc: 1} }

// part is the matrix without its first i rows and j columns, in its memory.
func part(a blas64.General, i, j int) blas64.General {
	return blas64.General{Rows: a.Rows - i, Cols: a.Cols - j, Stride: a.Stride,
		Data: a.Data[min(i*a.Stride+j, len(a.Data)):]}
}

// reduce makes columns from to to-1 tridiagonal and updates the rest of the matrix: A - V W' - W
// V'. Half of the work is products of the rest of the matrix with one vector, at the speed of
// memory; the other half is the update, in products of matrices.
func (t *tridiagonal) reduce(from, to int) {
	n, w := t.a.Rows, to-from
	s := zeros(2*w, n-from) // a row of V', then one of W'
	by, sums := make([]float64, 2*w), make([]float64, 2*w)
	for j := from; j < to; j++ {
		i := j - from
		x := row64(t.a, j)[j:]
		for l := range 2 * i {
			by[l^1] = -s.Data[l*s.Stride+i]
		}
		addRows(s.Data[i:], s.Stride, by[:2*i], x) // what this block's reflectors did to row j
		t.d[j] = x[0]
		if j == n-1 {
			break
		}
		x = x[1:]
		t.e[j], t.tau[j] = reflect(x)
		copy(row64(s, 2*i)[i+1:], x)
		p := row64(s, 2*i+1)[i+1:]
		timesSymmetric(part(t.a, j+1, j+1), x, p)
		dotRows(s.Data[i+1:], s.Stride, x, sums[:2*i])
		for l, sum := range sums[:2*i] {
			by[l^1] = -sum
		}
		addRows(s.Data[i+1:], s.Stride, by[:2*i], p)
		blas64.Scal(t.tau[j], vec(p))
		blas64.Axpy(-t.tau[j]/2*blas64.Dot(vec(p), vec(x)), vec(x), vec(p))
	}
	if to < n {
		swapped := zeros(2*w, n-to)
		for l := range 2 * w {
			copy(row64(swapped, l^1), row64(s, l)[w:])
		}
		rest := part(t.a, to, to)
		for i := 0; i < n-to; i += updateRows {
			h := min(updateRows, n-to-i)
			Gemm(blas.Trans, blas.NoTrans, -1, block(s, 0, 2*w, w+i, h), part(swapped, 0, i), 1,
				block(rest, i, h, i, n-to-i))
		}
	}
}

// updateRows is the rows of the upper triangle that one product updates.
const updateRows = 160

// timesSymmetric sets p to a x for the symmetric matrix whose upper triangle a has, which it reads
// once. Four rows at a time share the reads of x and p. The order of its sums is its own.
func timesSymmetric(a blas64.General, x, p []float64) {
	n := len(x)
	clear(p)
	for i := 0; i < n; {
		if n-i < 4 {
			row := row64(a, i)[i:]
			p[i] += row[0]*x[i] + blas64.Dot(vec(row[1:]), vec(x[i+1:]))
			blas64.Axpy(x[i], vec(row[1:]), vec(p[i+1:]))
			i++
			continue
		}
		for r := i; r < i+4; r++ { // the block on the diagonal
			row := row64(a, r)[r : i+4]
			xr, to := x[r:i+4], p[r:i+4]
			to[0] += row[0] * xr[0]
			for c := 1; c < len(row); c++ {
				to[0] += row[c] * xr[c]
				to[c] += row[c] * xr[0]
			}
		}
		at, by := i+4, [4]float64{x[i], x[i+1], x[i+2], x[i+3]}
		var sums [4]float64
		if at < n {
			done := at + half4(n-at, a.Data[i*a.Stride+at:], a.Stride, x[at:], p[at:], &by, &sums)
			xs, ps := x[done:], p[done:]
			for r := range 4 {
				sum, b := sums[r], by[r]
				for c, v := range row64(a, i+r)[done:] {
					sum += v * xs[c]
					ps[c] += v * b
				}
				p[i+r] += sum
			}
		}
		i += 4
	}
}

// reflect replaces x by v, where (I - tau v v') x = (e, 0, ..., 0) and v begins with 1. e has the
// sign opposite to x's first number, so that their difference does not cancel. Of x = (e, 0, ...,
// 0) tau is 0.
func reflect(x []float64) (e, tau float64) {
	norm := blas64.Nrm2(vec(x[1:]))
	if norm == 0 {
		e = x[0]
		x[0] = 1
		return e, 0
	}
	e = -math.Copysign(math.Hypot(x[0], norm), x[0])
	tau = (e - x[0]) / e
	blas64.Scal(1/(x[0]-e), vec(x[1:]))
	x[0] = 1
	return e, tau
}

// back turns eigenvectors of the tridiagonal matrix into those of the matrix: blocks of reflectors
// are I - V' T V (Schreiber and Van Loan 1989). Blocks are applied from the last, each to the rows
// below its first column.
func (t *tridiagonal) back(z blas64.General) {
	n := t.a.Rows
	tv, vz := make([]float64, together*n), make([]float64, together*n)
	for from := (n - 1) / together * together; from >= 0; from -= together {
		w := min(from+together, n-1) - from
		if w < 1 {
			continue
		}
		m := n - from - 1
		v := block(t.a, from, w, from+1, m)
		for i := range w {
			clear(row64(v, i)[:i])
		}
		tv, vz := blas64.General{Rows: w, Cols: m, Stride: m, Data: tv[:w*m]},
			blas64.General{Rows: w, Cols: n, Stride: n, Data: vz[:w*n]}
		rest := part(z, from+1, 0)
		Gemm(blas.Trans, blas.NoTrans, 1, compact(v, t.tau[from:]), v, 0, tv)
		Gemm(blas.NoTrans, blas.NoTrans, 1, v, rest, 0, vz)
		Gemm(blas.Trans, blas.NoTrans, -1, tv, vz, 1, rest)
	}
}

// compact returns T, upper triangular, of reflectors that are the rows of v. T_ii = tau_i and
// T_{<i,i} = -tau_i T_{<i,<i} (V v_i), as in LAPACK's dlarft.
func compact(v blas64.General, tau []float64) blas64.General {
	w := v.Rows
	f, gram := zeros(w, w), zeros(w, w)
	Gemm(blas.NoTrans, blas.Trans, 1, v, v, 0, gram)
	for i := range w {
		f.Data[i*w+i] = tau[i]
		for r := range i {
			var s float64
			for l := r; l < i; l++ {
				s += f.Data[r*w+l] * gram.Data[l*w+i]
			}
			f.Data[r*w+i] = -tau[i] * s
		}
	}
	return f
}

// divide sets d to the eigenvalues, ascending, and q, zeros, to the eigenvectors of the tridiagonal
// matrix of diagonal d and off-diagonal e, which it overwrites. T is the two halves on the
// diagonal, with |e_m| taken off both ends, plus |e_m| v v' for v = (0..., 1, ±1, ...0). In
// eigenvectors of the halves that is 2 |e_m| z z' with |z| = 1.
func divide(d, e []float64, q blas64.General, s *scratch) {
	n := len(d)
	if n <= leaf {
		work := make([]float64, max(1, 2*n-2))
		if !(lapack.Implementation{}).Dsteqr('I', n, d, e, q.Data, q.Stride, work) {
			for i := range d {
				d[i] = math.NaN()
			}
		}
		return
	}
	m := n / 2
	between := e[m-1]
	d[m-1] -= math.Abs(between)
	d[m] -= math.Abs(between)
	divide(d[:m], e[:m-1], block(q, 0, m, 0, m), s)
	divide(d[m:], e[m:], block(q, m, n-m, m, n-m), s)
	j := &join{d: d, z: make([]float64, n), q: q, upper: m, rho: 2 * math.Abs(between), scratch: s}
	for i := range n {
		if i < m {
			j.z[i] = row64(q, m-1)[i] / math.Sqrt2
		} else {
			j.z[i] = math.Copysign(1, between) * row64(q, m)[i] / math.Sqrt2
		}
	}
	j.solve()
}
