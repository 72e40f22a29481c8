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
// (Cuppen 1981; Gu and Eisenstat 1995). Three quarters of the work are products.
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
	// The deflation of [divide] compares eigenvalues with entries of unit vectors: the largest number is
	// scaled to 1/2 to 1, by a power of two, which is exact.
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
	values, vectors = divide(t.d, t.e)
	for i, v := range values {
		values[i] = math.Ldexp(v, exponent)
	}
	t.back(vectors)
	return values, vectors
}

// tridiagonal is the state of a reduction: rows and columns before that in hand have their
// reflectors in the rows of a, beyond the diagonal.
type tridiagonal struct {
	a    blas64.General
	d, e []float64
	tau  []float64
}

func row64(a blas64.General, i int) []float64 { return a.Data[i*a.Stride : i*a.Stride+a.Cols] }

func vec(x []float64) blas64.Vector { return blas64.Vector{N: len(x), Data: x, Inc: 1} }

func part(a blas64.General, i, j int) blas64.General {
	return blas64.General{Rows: a.Rows - i, Cols: a.Cols - j, Stride: a.Stride,
		Data: a.Data[min(i*a.Stride+j, len(a.Data)):]}
}

// reduce makes columns from to to-1 tridiagonal and updates the rest of the matrix: A - V W' - W
// V'.
func (t *tridiagonal) reduce(from, to int) {
	n, w := t.a.Rows, to-from
	// a reflector a row
	v := blas64.General{Rows: w, Cols: n - from, Stride: n - from, Data: make([]float64, w*(n-from))}
	// W, a row each
	u := blas64.General{Rows: w, Cols: n - from, Stride: n - from, Data: make([]float64, w*(n-from))}
	for j := from; j < to; j++ {
		i := j - from
		x := row64(t.a, j)[j:]
		for l := range i { // what the reflectors of this block did to row j
			blas64.Axpy(-row64(u, l)[i], vec(row64(v, l)[i:]), vec(x))
			blas64.Axpy(-row64(v, l)[i], vec(row64(u, l)[i:]), vec(x))
		}
		t.d[j] = x[0]
		if j == n-1 {
			break
		}
		x = x[1:]
		t.e[j], t.tau[j] = reflect(x)
		copy(row64(v, i)[i+1:], x)
		p := row64(u, i)[i+1:]
		timesSymmetric(part(t.a, j+1, j+1), x, p)
		for l := range i {
			vl, ul := row64(v, l)[i+1:], row64(u, l)[i+1:]
			a, b := blas64.Dot(vec(ul), vec(x)), blas64.Dot(vec(vl), vec(x))
			blas64.Axpy(-a, vec(vl), vec(p))
			blas64.Axpy(-b, vec(ul), vec(p))
		}
		blas64.Scal(t.tau[j], vec(p))
		blas64.Axpy(-t.tau[j]/2*blas64.Dot(vec(p), vec(x)), vec(x), vec(p))
	}
	if to < n {
		rest, vr, ur := part(t.a, to, to), part(v, 0, w), part(u, 0, w)
		for i := 0; i < n-to; i += updateRows {
			h := min(updateRows, n-to-i)
			c, vi, ui := block(rest, i, h, i, n-to-i), part(vr, 0, i), part(ur, 0, i)
			Gemm(blas.Trans, blas.NoTrans, -1, block(vi, 0, w, 0, h), ui, 1, c)
			Gemm(blas.Trans, blas.NoTrans, -1, block(ui, 0, w, 0, h), vi, 1, c)
		}
	}
}

// updateRows is the rows of the upper triangle that one product updates.
const updateRows = 160

// timesSymmetric sets p to a x for the symmetric matrix whose upper triangle a has, which it reads
// once.
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
			row := row64(a, r)
			p[r] += row[r] * x[r]
			for c := r + 1; c < i+4; c++ {
				p[r] += row[c] * x[c]
				p[c] += row[c] * x[r]
			}
		}
		at, by := i+4, [4]float64{x[i], x[i+1], x[i+2], x[i+3]}
		var sums [4]float64
		if at < n {
			done := half4(n-at, a.Data[i*a.Stride+at:], a.Stride, x[at:], p[at:], &by, &sums)
			for r := range 4 {
				row := row64(a, i+r)[at+done:]
				p[i+r] += sums[r] + blas64.Dot(vec(row), vec(x[at+done:]))
				blas64.Axpy(by[r], vec(row), vec(p[at+done:]))
			}
		}
		i += 4
	}
}

// reflect replaces x by v, where (I - tau v v') x = (e, 0, ..., 0) and v begins with 1.
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
// are I - V' T V (Schreiber and Van Loan 1989).
func (t *tridiagonal) back(z blas64.General) {
	n := t.a.Rows
	for from := (n - 1) / together * together; from >= 0; from -= together {
		w := min(from+together, n-1) - from
		if w < 1 {
			continue
		}
		m := n - from - 1
		v := blas64.General{Rows: w, Cols: m, Stride: m, Data: make([]float64, w*m)}
		for i := range w {
			copy(row64(v, i)[i:], row64(t.a, from+i)[from+i+1:])
		}
		// T, upper triangular
		f := blas64.General{Rows: w, Cols: w, Stride: w, Data: make([]float64, w*w)}
		gram := blas64.General{Rows: w, Cols: w, Stride: w, Data: make([]float64, w*w)}
		Gemm(blas.NoTrans, blas.Trans, 1, v, v, 0, gram)
		for i := range w {
			tau := t.tau[from+i]
			f.Data[i*w+i] = tau
			for r := range i {
				var s float64
				for l := r; l < i; l++ {
					s += f.Data[r*w+l] * gram.Data[l*w+i]
				}
				f.Data[r*w+i] = -tau * s
			}
		}
		rest := part(z, from+1, 0)
		vz := blas64.General{Rows: w, Cols: n, Stride: n, Data: make([]float64, w*n)}
		tvz := blas64.General{Rows: w, Cols: n, Stride: n, Data: make([]float64, w*n)}
		Gemm(blas.NoTrans, blas.NoTrans, 1, v, rest, 0, vz)
		Gemm(blas.NoTrans, blas.NoTrans, 1, f, vz, 0, tvz)
		Gemm(blas.Trans, blas.NoTrans, -1, v, tvz, 1, rest)
	}
}

// divide returns eigenvalues, ascending, and eigenvectors of the tridiagonal matrix of diagonal d
// and off-diagonal e, which it overwrites.
func divide(d, e []float64) ([]float64, blas64.General) {
	n := len(d)
	q := blas64.General{Rows: n, Cols: n, Stride: n, Data: make([]float64, n*n)}
	if n <= leaf {
		work := make([]float64, max(1, 2*n-2))
		if !(lapack.Implementation{}).Dsteqr('I', n, d, e, q.Data, n, work) {
			for i := range d {
				d[i] = math.NaN()
			}
		}
		return d, q
	}
	m := n / 2
	between := e[m-1]
	d[m-1] -= math.Abs(between)
	d[m] -= math.Abs(between)
	low, q1 := divide(d[:m], e[:m-1])
	high, q2 := divide(d[m:], e[m:])
	j := &join{d: append(append([]float64{}, low...), high...), z: make([]float64, n), q: q,
		rho: 2 * math.Abs(between)}
	for i := range m {
		copy(row64(q, i), row64(q1, i))
		j.z[i] = row64(q1, m-1)[i] / math.Sqrt2
	}
	for i := range n - m {
		copy(row64(q, m+i)[m:], row64(q2, i))
		j.z[m+i] = math.Copysign(1, between) * row64(q2, 0)[i] / math.Sqrt2
	}
	return j.solve()
}
