package kernel

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
)

// Blocks of a matrix product. One blas call covers at most tileRows x tileCols outputs: below the
// size at which gonum starts goroutines of its own, so that the number of threads is ours to
// choose. depth elements of the inner axis at a time keep a block of b in the first-level cache.
const (
	tileRows = 48
	tileCols = 192
	depth    = 64
)

// matrix is a row-major matrix with a row stride, possibly read transposed.
type matrix[T floating] struct {
	data       []T
	rows, cols int // as read, that is after transposing
	stride     int
	trans      bool
}

// dense is a whole row-major matrix.
func dense[T floating](d []T, rows, cols int) matrix[T] {
	return matrix[T]{data: d, rows: rows, cols: cols, stride: max(cols, 1)}
}

// part is the block of r rows and k columns from (i, j) on.
func (m matrix[T]) part(i, j, r, k int) matrix[T] {
	off := i*m.stride + j
	if m.trans {
		off = j*m.stride + i
	}
	off = min(off, len(m.data)) // a matrix without columns has no data
	return matrix[T]{data: m.data[off:], rows: r, cols: k, stride: m.stride, trans: m.trans}
}

// multiply adds a b to c on the calling goroutine: c (m x n) += a (m x k) b (k x n). The order of
// summation depends on the shapes alone. steps is [Spec].Reproducible: products are rounded before
// they are added.
func multiply[T floating](a, b, c matrix[T], steps bool) {
	multiplyAs(a, b, c, panels(a.rows, b.cols, a.cols), steps, false)
}

// multiplyAs is multiply of a part of a product, which is done in panels or not as the whole is,
// and which panels set c to where fresh is set.
func multiplyAs[T floating](a, b, c matrix[T], inPanels, steps, fresh bool) {
	if a.rows == 0 || b.cols == 0 || a.cols == 0 {
		return
	}
	if a, ok := any(a).(matrix[float32]); ok && inPanels {
		multiplyPanels(a, any(b).(matrix[float32]), any(c).(matrix[float32]), steps, fresh)
		return
	}
	if steps || !finite(b) {
		// gonum skips products with a zero of a; with an infinity or NaN in b such a product is
		// NaN. Its sums are the processor's.
		multiplyPlain(a, b, c)
		return
	}
	multiplyFinite(a, b, c)
}

// multiplyFinite is multiply for a b that is known to hold numbers alone.
func multiplyFinite[T floating](a, b, c matrix[T]) {
	m, n, k := a.rows, b.cols, a.cols
	if n < panelLeast && k >= panelLeast && !a.trans && !b.trans {
		multiplyNarrow(a, b, c)
		return
	}
	for j := 0; j < n; j += tileCols {
		w := min(tileCols, n-j)
		for l := 0; l < k; l += depth {
			d := min(depth, k-l)
			bp := b.part(l, j, d, w)
			for i := 0; i < m; i += tileRows {
				h := min(tileRows, m-i)
				gemm(a.part(i, l, h, d), bp, c.part(i, j, h, w))
			}
		}
	}
}

// multiplyNarrow is multiplyFinite for a b of fewer than panelLeast columns. These are turned into
// rows: sums then run along both, where each step of gonum's other way is a row of b.
func multiplyNarrow[T floating](a, b, c matrix[T]) {
	const most = 256 // numbers of the inner axis at a time
	var turned [panelLeast * most]T
	for l := 0; l < a.cols; l += most {
		d := min(most, a.cols-l)
		for j := range b.cols {
			for i := range d {
				turned[j*d+i] = b.data[(l+i)*b.stride+j]
			}
		}
		t := matrix[T]{data: turned[:b.cols*d], rows: d, cols: b.cols, stride: d, trans: true}
		for i := 0; i < a.rows; i += tileRows {
			h := min(tileRows, a.rows-i)
			gemm(a.part(i, l, h, d), t, c.part(i, 0, h, b.cols))
		}
	}
}

// flag is BLAS's name for a matrix that is read transposed, or as it lies.
func flag(t bool) blas.Transpose {
	if t {
		return blas.Trans
	}
	return blas.NoTrans
}

// stored is the shape of the matrix as it lies in memory.
func (m matrix[T]) stored() (rows, cols int) {
	if m.trans {
		return m.cols, m.rows
	}
	return m.rows, m.cols
}

// gemm adds a b to c by gonum. BLAS takes the sizes in memory, which are exchanged where a matrix
// is read transposed.
func gemm[T floating](a, b, c matrix[T]) {
	ar, ac := a.stored()
	br, bc := b.stored()
	switch c := any(c).(type) {
	case matrix[float32]:
		a, b := any(a).(matrix[float32]), any(b).(matrix[float32])
		blas32.Gemm(flag(a.trans), flag(b.trans), 1,
			blas32.General{Rows: ar, Cols: ac, Stride: a.stride, Data: a.data},
			blas32.General{Rows: br, Cols: bc, Stride: b.stride, Data: b.data}, 1,
			blas32.General{Rows: c.rows, Cols: c.cols, Stride: c.stride, Data: c.data})
	case matrix[float64]:
		a, b := any(a).(matrix[float64]), any(b).(matrix[float64])
		blas64.Gemm(flag(a.trans), flag(b.trans), 1,
			blas64.General{Rows: ar, Cols: ac, Stride: a.stride, Data: a.data},
			blas64.General{Rows: br, Cols: bc, Stride: b.stride, Data: b.data}, 1,
			blas64.General{Rows: c.rows, Cols: c.cols, Stride: c.stride, Data: c.data})
	}
}

// finite reports whether a matrix holds neither infinities nor NaN: x * 0 is 0 for all others. It
// takes one pass. The sum is NaN as soon as one product is; it takes no branches.
func finite[T floating](m matrix[T]) bool {
	r, k := m.stored()
	var sum T
	for i := 0; i < r; i++ {
		for _, v := range m.data[i*m.stride : i*m.stride+k] {
			sum += v * 0
		}
	}
	return sum == 0
}

// multiplyPlain rounds every product before it is added, as panels in steps do. The conversion T(v
// w) keeps Go from fusing product and sum (Go specification, floating-point operators).
func multiplyPlain[T floating](a, b, c matrix[T]) {
	rowA, colA := a.stride, 1
	if a.trans {
		rowA, colA = colA, rowA
	}
	for i := range a.rows {
		sums := c.data[i*c.stride:][:c.cols]
		for l := range a.cols {
			v := a.data[i*rowA+l*colA]
			if b.trans {
				for j := range sums {
					sums[j] += T(v * b.data[j*b.stride+l])
				}
				continue
			}
			for j, w := range b.data[l*b.stride:][:len(sums)] {
				sums[j] += T(v * w)
			}
		}
	}
}

// parallelMultiply adds a b to out, or sets out to the lines of it where those are given, divided
// among threads by rows or by columns of out, in whole tiles. r, where it is not nil, is b.
func parallelMultiply[T floating](c *Call, a, b, out matrix[T], r *right, l *lines) {
	m, n, k := a.rows, b.cols, a.cols
	inPanels := panels(m, n, k)
	if m == 0 || n == 0 || k == 0 && l == nil {
		return
	}
	// the lines that kernels start and end by themselves, of any number of rows
	own, high := l, lineRows
	if r == nil || !haveMasks() {
		own = nil
	}
	if own != nil {
		l, high = nil, max(m, 1)
	}
	part := func(i, rows, j, cols int) {
		to := out.part(i, j, rows, cols)
		beginLines(l, to, j)
		if r != nil {
			r.multiply(any(a.part(i, 0, rows, k)).(matrix[float32]), j, j+cols,
				any(to).(matrix[float32]), own)
		} else {
			multiplyAs(a.part(i, 0, rows, k), b.part(0, j, k, cols), to, inPanels,
				c.env.Reproducible, false)
		}
		endLines(l, to, j)
	}
	if m >= n {
		tiles := (m + tileRows - 1) / tileRows
		c.Parallel(tiles, work(tileRows, n, k)/4, func(lo, hi int) {
			for i := lo * tileRows; i < min(hi*tileRows, m); i += high {
				part(i, min(high, hi*tileRows-i, m-i), 0, n)
			}
		})
		return
	}
	tiles := (n + tileCols - 1) / tileCols
	c.Parallel(tiles, work(tileCols, m, k)/4, func(lo, hi int) {
		j := lo * tileCols
		part(0, m, j, min(hi*tileCols, n)-j)
	})
}
