package dense

import (
	"fmt"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// Width is the columns of a panel. Rows of matrices that softmaxes are taken of are a multiple of
// it long ([Padded]).
const Width = 8

// depth is how much of the inner axis is done at a time: two panels of it fit the first-level
// cache, which they stay in while all rows of the left operand pass.
const depth = 256

// Padded returns n rounded up to a multiple of Width.
func Padded(n int) int { return (n + Width - 1) / Width * Width }

// Packed is a matrix laid out to be the right operand of products.
type Packed struct {
	rows, cols int
	panels     []float64 // [Padded(cols) / Width, rows, Width], zeros where there is no column
}

// Pack lays out b, or its transpose, in buf where that has room. buf may be nil; where it is taken,
// it belongs to the result until [Packed.Buffer] gives it back. b is copied and may change
// afterwards.
func Pack(t blas.Transpose, b blas64.General, buf []float64) Packed {
	p := Packed{rows: b.Rows, cols: b.Cols}
	if t != blas.NoTrans {
		p.rows, p.cols = b.Cols, b.Rows
	}
	p.panels = room(buf, Padded(p.cols)*p.rows)
	pack(p.panels, t, b, 0, p.rows, 0, p.cols)
	return p
}

// room is n numbers of any contents, in buf where they fit.
func room[T float32 | float64](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}

// Buffer returns the memory behind p, for the next Pack. p must not be used after that Pack.
func (p Packed) Buffer() []float64 { return p.panels }

// pack copies rows from l to l+d and columns from j to j+w of b, as read, to dst: [Padded(w) /
// Width, d, Width]. It writes every number of dst, so that its contents before do not matter.
func pack(dst []float64, t blas.Transpose, b blas64.General, l, d, j, w int) {
	for q := 0; q < w; q += Width {
		v := min(Width, w-q)
		to := dst[q*d : (q+Width)*d]
		if t != blas.NoTrans {
			for x := range Width {
				if x >= v {
					for at := x; at < len(to); at += Width {
						to[at] = 0
					}
					continue
				}
				at := x
				from := (j+q+x)*b.Stride + l
				for _, e := range b.Data[from : from+d] {
					to[at] = e
					at += Width
				}
			}
			continue
		}
		for x := range d {
			row := (*[Width]float64)(to[x*Width:])
			from := b.Data[(l+x)*b.Stride+j+q:]
			if v == Width {
				*row = *(*[Width]float64)(from)
				continue
			}
			clear(row[copy(row[:], from[:v]):])
		}
	}
}

// Mul adds a p, or a' p, to c, which may be as wide as the panels: Padded(columns), the last of
// which it leaves as they are. It panics where shapes do not fit. Several goroutines may multiply
// by one p at a time, into c of their own.
func (p Packed) Mul(t blas.Transpose, a, c blas64.General) {
	m, k, rs, ks := left(t, a)
	if k != p.rows || c.Rows != m || c.Cols != p.cols && c.Cols != Padded(p.cols) {
		panic(fmt.Sprintf("dense: product of %d x %d and %d x %d into %d x %d", m, k, p.rows,
			p.cols, c.Rows, c.Cols))
	}
	if m == 0 || k == 0 || p.cols == 0 {
		return
	}
	e := edges.Get().(*edge)
	defer edges.Put(e)
	for l := 0; l < k; l += depth {
		d := min(depth, k-l)
		e.block(m, d, c.Cols, a.Data[l*ks:], rs, ks, p.panels[l*Width:], p.rows*Width,
			c.Data, c.Stride)
	}
}

// MulRows adds a' times the rows of p from from on, as many as a has, to the square matrix c; where
// upper is set, to the tiles that touch its upper triangle alone. Below the diagonal the tiles that
// touch it are written as well, and the rest of that triangle stays as it is.
func (p Packed) MulRows(from int, a, c blas64.General, upper bool) {
	if from < 0 || from+a.Rows > p.rows || a.Cols != p.cols || c.Rows != p.cols ||
		c.Cols != p.cols {
		panic(fmt.Sprintf("dense: product of %d x %d and rows from %d of %d x %d into %d x %d",
			a.Cols, a.Rows, from, p.rows, p.cols, c.Rows, c.Cols))
	}
	e := edges.Get().(*edge)
	defer edges.Put(e)
	for l := 0; l < a.Rows; l += depth {
		d := min(depth, a.Rows-l)
		for j := 0; j < c.Cols; j += 2 * Width {
			n, m := min(2*Width, c.Cols-j), c.Rows
			if upper {
				m = j + n
			}
			e.block(m, d, n, a.Data[l*a.Stride:], 1, a.Stride, p.panels[j*p.rows+(from+l)*Width:],
				p.rows*Width, c.Data[j:], c.Stride)
		}
	}
}

// MulRow adds x p to y, for a row x: at the speed of memory, where Mul would leave most of a tile
// empty. The order of its sums is its own. x has as many numbers as p has rows, y as many as it has
// columns.
func (p Packed) MulRow(x, y []float64) {
	if len(x) != p.rows || len(y) != p.cols {
		panic(fmt.Sprintf("dense: product of a row of %d and %d x %d into a row of %d", len(x),
			p.rows, p.cols, len(y)))
	}
	if p.rows == 0 {
		return
	}
	for j := 0; j < p.cols; j += Width {
		panel := p.panels[j*p.rows:]
		if j+Width <= p.cols {
			row(p.rows, x, panel, y[j:])
			continue
		}
		var last [Width]float64
		copy(last[:], y[j:])
		row(p.rows, x, panel, last[:])
		copy(y[j:], last[:])
	}
}

// left is a's shape as read, and the distances of its rows and columns in memory. A transposed
// matrix is read where it lies, with its distances exchanged.
func left(t blas.Transpose, a blas64.General) (m, k, rs, ks int) {
	if t == blas.NoTrans {
		return a.Rows, a.Cols, a.Stride, 1
	}
	return a.Cols, a.Rows, 1, a.Stride
}

// gemmWidth is how many columns Gemm packs at a time: depth x gemmWidth numbers fit the
// second-level cache.
const gemmWidth = 512

// Gemm sets c to alpha a b + beta c, with a and b transposed as their flags say: blas64.Gemm, on
// the calling goroutine. Unlike there, an infinity or NaN of either operand comes through a zero of
// the other. With beta = 0 the contents of c do not matter, NaN included. It panics where shapes do
// not fit, and costs O(m n k).
func Gemm(tA, tB blas.Transpose, alpha float64, a, b blas64.General, beta float64,
	c blas64.General) {
	m, k, rs, ks := left(tA, a)
	bk, n := b.Rows, b.Cols
	if tB != blas.NoTrans {
		bk, n = n, bk
	}
	if bk != k || c.Rows != m || c.Cols != n {
		panic(fmt.Sprintf("dense: product of %d x %d and %d x %d into %d x %d", m, k, bk, n,
			c.Rows, c.Cols))
	}
	if m == 0 || n == 0 {
		return
	}
	if beta != 1 {
		for i := range m {
			row := c.Data[i*c.Stride : i*c.Stride+n]
			if beta == 0 {
				clear(row)
				continue
			}
			for j := range row {
				row[j] *= beta
			}
		}
	}
	if alpha == 0 || k == 0 {
		return
	}
	e := edges.Get().(*edge)
	defer edges.Put(e)
	for j := 0; j < n; j += gemmWidth {
		w := min(gemmWidth, n-j)
		for l := 0; l < k; l += depth {
			d := min(depth, k-l)
			e.b = room(e.b, Padded(w)*d)
			panels := e.b
			pack(panels, tB, b, l, d, j, w)
			if alpha != 1 {
				for i := range panels {
					panels[i] *= alpha
				}
			}
			e.block(m, d, w, a.Data[l*ks:], rs, ks, panels, d*Width, c.Data[j:], c.Stride)
		}
	}
}

// edge is memory for rows and columns that do not fill a tile.
type edge struct {
	a []float64 // [depth, tileRows]
	b []float64 // Gemm's panels
	c [tileRows * 2 * Width]float64
}

// edges keep memory between products of any goroutine: one each while it multiplies.
var edges = sync.Pool{New: func() any { return &edge{a: make([]float64, depth*tileRows)} }}

// block adds a b to c: a is m x d with distances rs and ks, b has n columns in panels that are bs
// apart.
func (e *edge) block(m, d, n int, a []float64, rs, ks int, b []float64, bs int,
	c []float64, cs int) {
	last := m / tileRows * tileRows
	if last < m { // rows that do not fill a tile are copied beside zeros
		for x := range d {
			row := e.a[x*tileRows : (x+1)*tileRows]
			for r := range row {
				row[r] = 0
				if last+r < m {
					row[r] = a[(last+r)*rs+x*ks]
				}
			}
		}
	}
	for j := 0; j < n; {
		w := Width
		if twoPanels && n-j > Width {
			w = 2 * Width
		}
		v, panel := min(w, n-j), b[j/Width*bs:]
		for i := 0; i < m; i += tileRows {
			h := min(tileRows, m-i)
			at, ar, ak := a[i*rs:], rs, ks
			if h < tileRows {
				at, ar, ak = e.a, 1, tileRows
			}
			if h == tileRows && v == w {
				tile(d, at, ar, ak, panel, bs, c[i*cs+j:], cs, w)
				continue
			}
			clear(e.c[:])
			for r := range h {
				copy(e.c[r*w:], c[(i+r)*cs+j:(i+r)*cs+j+v])
			}
			tile(d, at, ar, ak, panel, bs, e.c[:], w, w)
			for r := range h {
				copy(c[(i+r)*cs+j:(i+r)*cs+j+v], e.c[r*w:])
			}
		}
		j += w
	}
}
