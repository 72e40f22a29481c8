package kernel

import (
	"sync"

	"fmp/onnx"
)

// A float32 matrix product the size of which is worth it is done in panels, as Goto and van de
// Geijn describe ("Anatomy of high-performance matrix multiplication", 2008): the blocks of a and b
// that are in use are copied to lie in the order in which they are read, and the innermost loop
// (AVX-512 or AVX2 on amd64 as the processor has it, NEON on arm64, vectors of WebAssembly where a
// page lends them, Go elsewhere) keeps panelRows x panelCols sums in registers. Every sum runs over
// the inner axis in its order, beginning with the content of c, so that it does not depend on how a
// product is cut into parts. Where steps is set a product is rounded before it is added; else the
// processor's fused operations do both in one.
const (
	panelHeight = 256 // rows of a block
	// inner axis of a block: panelDepth x panelCols of b fits the first-level cache
	panelDepth = 384
	// columns of a block: panelDepth x panelWidth of b fits the second, and so does all of a
	panelWidth = 256
	fewRows    = 128 // of a product whose b is not worth copying
	fewColumns = 4   // of a product whose rows, not columns, fill vectors
	panelLeast = 8   // fewer rows, columns or inner elements are not worth copying
)

// panels reports whether a product of such a size is done in panels. It is asked of the whole
// product, never of parts of it.
func panels(m, n, k int) bool {
	return havePanels && m >= panelLeast && n >= panelLeast && k >= panelLeast
}

// packs is memory for the copies.
type packs struct {
	a []float32 // [rows / panelRows, depth, panelRows]
	b []float32 // [columns / panelCols, depth, panelCols]
	c []float32 // edgeRoom numbers, for tiles at the edges

	manner
	bounds  [2]float32 // of the product's elements
	bounded bool       // whether kernels end with them
	// lay writes a slab's panels of the right operand to b; nil: they are copied from it
	lay func(b []float32, s slab)
}

// manner is how a kernel computes a tile.
type manner struct {
	steps bool
	// the least and the largest sum, where the kernel ends with bounds; nil: none
	limits *[2]float32
	// where the sums of a column start, with AVX-512 and more than fewColumns of them; nil: in c
	row []float32
	// more has sums begin at the content of c plus a row's number, where there is one, with AVX-512
	more bool
}

// newPacks takes memory from packPool, to which the caller gives it back. It serves one goroutine
// at a time.
func newPacks(steps bool) *packs {
	p := packPool.Get().(*packs)
	p.manner, p.bounded, p.lay = manner{steps: steps}, false, nil
	return p
}

var packPool = sync.Pool{New: func() any {
	return &packs{a: make([]float32, panelDepth*panelHeight),
		b: make([]float32, panelDepth*panelWidth),
		c: make([]float32, edgeRoom)}
}}

// multiplyPanels is multiply in panels, for any numbers: nothing is skipped. Where fresh is set, c
// is set to the product. It costs O(m n k), and copies of O(m k n / panelWidth + k n) numbers.
func multiplyPanels(a, b, c matrix[float32], steps, fresh bool) {
	p := newPacks(steps)
	defer packPool.Put(p)
	var from []float32
	if fresh {
		from = noBias[:0]
	}
	p.multiply(nil, a, b, c, from, nil)
}

// packLeft copies a to dst, of packedLen numbers, for every product that a is the left operand of.
// The inner axis comes in parts of panelDepth: part l begins at high · l, where high is the number
// of rows in whole panels.
func packLeft(dst []float32, a matrix[float32]) {
	high := padRows(a.rows)
	for l := 0; l < a.cols; l += panelDepth {
		d := min(panelDepth, a.cols-l)
		for r := 0; r < a.rows; r += panelRows {
			packRows(dst[high*l+r*d:][:panelRows*d], a.part(r, l, min(panelRows, a.rows-r), d))
		}
	}
}

// padRows is a number of rows in whole panels.
func padRows(rows int) int { return (rows + panelRows - 1) / panelRows * panelRows }

// padColumns is a number of columns in whole panels.
func padColumns(cols int) int { return (cols + panelCols - 1) / panelCols * panelCols }

// right is a constant as the right operand of products reads it, laid out when it is first wanted.
type right struct {
	matrix[float32] // as it lies in the model
	once            sync.Once
	packed          []float32 // for every part of the inner axis, its panels
	steps           bool
}

// newRight returns nil where the operand is not known, not worth it, or too large to be kept.
func newRight(s *Spec, i int, trans bool) *right {
	m := s.constant(i)
	if m == nil || m.DType != onnx.Float32 || len(m.Shape) != 2 {
		return nil
	}
	r := &right{steps: s.Reproducible,
		matrix: matrix[float32]{data: m.F32(), rows: m.Shape[0], cols: m.Shape[1],
			stride: max(1, m.Shape[1]),
			trans:  trans}}
	if trans {
		r.rows, r.cols = r.cols, r.rows
	}
	if !panels(panelLeast, r.cols, r.rows) || !s.keeps(padColumns(r.cols), r.rows) {
		return nil
	}
	return r
}

// multiply adds a times columns from to to of r to c, which has those alone, or, where by is not
// nil, sets c to by's lines of it, with AVX-512. Several goroutines may call it at a time: the
// first lays r out, and the others wait for that.
func (r *right) multiply(a matrix[float32], from, to int, c matrix[float32], by *lines) {
	wide := padColumns(r.cols)
	r.once.Do(func() {
		r.packed = make([]float32, wide*r.rows)
		for l := 0; l < r.rows; l += panelDepth {
			d := min(panelDepth, r.rows-l)
			packColumns(r.packed[wide*l:], r.part(l, 0, d, r.cols))
		}
	})
	p := newPacks(r.steps)
	defer packPool.Put(p)
	single := a.rows == 1 && !a.trans && stridedPanels && !r.steps
	// Blocks are of about one height, so that the last is not of a few rows.
	blocks := (a.rows + panelHeight - 1) / panelHeight
	high := padRows((a.rows + blocks - 1) / blocks)
	for i := 0; i < a.rows; i += high {
		h := min(high, a.rows-i)
		for l := 0; l < r.rows; l += panelDepth {
			d := min(panelDepth, r.rows-l)
			left := p.a[:padRows(h)*d]
			if !single {
				packLeft(left, a.part(i, l, h, d))
			}
			for j := from; j < to; j += panelCols {
				part, b := c.part(i, j-from, h, min(panelCols, to-j)),
					r.packed[wide*l+j*d:][:panelCols*d]
				if p.row = nil; l == 0 && by != nil {
					p.row = by.start(part, j, single)
				}
				if single {
					panelRow(d, a.data[l:], b, part.data[:part.cols])
				} else {
					p.panel(left, b, panelCols, d, part, nil)
				}
				if l+d == r.rows {
					endLines(by, part, j)
				}
			}
		}
	}
}

// multiply is multiplyPanels where packLeft has left of a, or, where that is nil, copies a as it
// goes. Where from is not nil, c is set to the product plus from, of which each row has a number,
// with room for whole panels, or zeros where it is empty. Where end is not nil, it is called with
// each part of c that is done, and with its first row, while that is in the cache; but not where
// kernels end with p.bounds, which are to be the same work.
func (p *packs) multiply(left []float32, a, b, c matrix[float32], from []float32,
	end func(part matrix[float32], row, col int)) {
	for l := 0; l < a.cols; l += panelDepth {
		d := min(panelDepth, a.cols-l)
		for j := 0; j < c.cols; j += panelWidth {
			s := slab{l: l, d: d, j: j, cols: min(panelWidth, c.cols-j), last: l+d == a.cols}
			over := s.cols % panelUnit()
			switch {
			case p.lay != nil:
				p.lay(p.b, s)
			// An operand that is read a few times is read where it lies.
			case stridedPanels && (a.rows <= fewRows || c.cols <= fewColumns) && !b.trans &&
				(over == 0 || over <= fewColumns && !p.steps):
				s.b, s.stride = b.data[l*b.stride+j:], b.stride
			default:
				packColumns(p.b, b.part(l, j, d, s.cols))
			}
			p.slab(s, left, a, c, from, end)
		}
	}
}

// slab is the part of a product over d elements of the inner axis from l on, and some of its
// columns from j on.
type slab struct {
	l, d, j, cols int
	// where rows of the right operand lie stride apart; nil: its panels are in packs.b
	b      []float32
	stride int
	last   bool // of the inner axis
}

// slab is multiply of a part, for all rows. They read a panel of b while it is in the first-level
// cache.
func (p *packs) slab(s slab, left []float32, a, c matrix[float32], from []float32,
	end func(part matrix[float32], row, col int)) {
	high := padRows(a.rows)
	for i := 0; i < a.rows; i += panelHeight {
		h := min(panelHeight, a.rows-i)
		at := p.a[:padRows(h)*s.d]
		if left != nil {
			at = left[high*s.l+i*s.d:][:len(at)]
		} else {
			packLeft(at, a.part(i, s.l, h, s.d))
		}
		var start []float32
		switch {
		case from == nil || s.l > 0:
		case len(from) == 0:
			start = noBias[:]
		default:
			start = from[i:]
		}
		for j, w := 0, 0; j < s.cols; j += w {
			if w = panelPart(j, s.cols); widest(s.cols-j) && h%panelRows == 0 && !p.steps {
				w = s.cols - j
			}
			part := c.part(i, s.j+j, h, w)
			if p.limits = nil; p.bounded && s.last && (w > fewColumns || p.steps) {
				p.limits = &p.bounds
			}
			b, stride, first := s.b, s.stride, j
			if b == nil {
				b, stride, first = p.b, panelCols, j/panelCols*panelCols*s.d+j%panelCols
			}
			p.panel(at, b[first:], stride, s.d, part, start)
			if end != nil && s.last && p.limits == nil {
				end(part, i, s.j+j)
			}
		}
	}
}

// multiplyWhole sets c, m x n, to the product of a, as packLeft has it, and b, where both have room
// for whole panels and rows that lie stride apart.
func multiplyWhole(a, b, c []float32, m, n, k, stride int) {
	high := padRows(m)
	if !stridedPanels {
		clear(c[:m*stride])
		p := newPacks(false)
		defer packPool.Put(p)
		p.multiply(a, matrix[float32]{rows: m, cols: k},
			matrix[float32]{data: b, rows: k, cols: n, stride: stride},
			matrix[float32]{data: c, rows: m, cols: n, stride: stride}, nil, nil)
		return
	}
	for l := 0; l < k; l += panelDepth {
		d, from := min(panelDepth, k-l), noBias[:]
		if l > 0 {
			from = nil
		}
		for j, w := 0, 0; j < n; j += w {
			if w = panelPart(j, n); widest(n - j) {
				w = n - j
			}
			if w <= fewColumns {
				few(a[high*l:][:high*d], b[l*stride+j:], stride, d,
					matrix[float32]{data: c[j:], rows: m, cols: w, stride: stride}, from[:0], false)
				continue
			}
			for i := 0; i < high; i += winogradRows {
				h := min(winogradRows, high-i)
				panelStrided(manner{}, d, h/panelRows, a[high*l+i*d:][:h*d], b[l*stride+j:], stride,
					c[i*stride+j:], stride, w, from)
			}
		}
	}
}

// noBias is the start of the sums of rows where there is no bias.
var noBias [max(winogradRows, panelHeight)]float32

// few is panel for at most fewColumns columns, where vectors hold rows of c in place of columns;
// its sums run as those of panel do. Where from is empty and not nil, they start from zeros.
func few(left, b []float32, bs, d int, c matrix[float32], from []float32, more bool) {
	if more && from != nil {
		for r := range c.rows {
			row := c.data[r*c.stride:][:c.cols]
			for j := range row {
				row[j] += from[r]
			}
		}
		from = nil
	}
	if c.cols == fewColumns {
		fewPanels(left, b, bs, d, c, from)
		return
	}
	for j := range c.cols {
		column(left, b[j:], bs, d,
			matrix[float32]{data: c.data[j:], rows: c.rows, cols: 1, stride: c.stride}, from)
	}
}

// columnPanels is how many panels of the left operand a product with one column reads side by side.
const columnPanels = 4

// column is few for one column. The column's numbers lie a row apart in c, so they go by way of a
// buffer.
func column(left, b []float32, bs, d int, c matrix[float32], from []float32) {
	var room [columnPanels * panelRows]float32
	for i := 0; i < c.rows; {
		h := len(room)
		if c.rows-i <= h-panelRows {
			h = panelRows // the last ones one after the other
		}
		sums, rows := room[:h], min(h, c.rows-i)
		switch {
		case len(from) > 0:
			copy(sums, from[i:])
		case from != nil:
			clear(sums)
		default:
			for r := range rows {
				sums[r] = c.data[(i+r)*c.stride]
			}
		}
		panelColumn(d, left[i*d:(i+h)*d], b, bs, sums)
		for r := range rows {
			c.data[(i+r)*c.stride] = sums[r]
		}
		i += h
	}
}

// fewPanels is few for fewColumns columns. Kernels transpose: start is by column and out by row.
func fewPanels(left, b []float32, bs, d int, c matrix[float32], from []float32) {
	const high = 2 * panelRows
	var out [high][fewColumns]float32
	var start [fewColumns][high]float32
	for i := 0; i < c.rows; i += high {
		rows, second := min(high, c.rows-i), (i+panelRows)*d
		if rows <= panelRows {
			second = i * d // computed twice
		}
		for r := 0; r < rows && (from == nil || len(from) > 0); r++ {
			for j := range fewColumns {
				if from != nil {
					start[j][r] = from[i+r]
				} else {
					start[j][r] = c.data[(i+r)*c.stride+j]
				}
			}
		}
		panelFew(d, left[i*d:][:panelRows*d], left[second:][:panelRows*d], b, bs, &start, &out)
		for r := range rows {
			*(*[fewColumns]float32)(c.data[(i+r)*c.stride:]) = out[r]
		}
	}
}

// packRows copies at most panelRows rows of a to dst, [a.cols, panelRows], with zeros for rows that
// are not there.
func packRows(dst []float32, a matrix[float32]) {
	d := a.cols
	dst = dst[:d*panelRows]
	for r := range panelRows {
		switch {
		case r >= a.rows:
			for l, at := 0, r; l < d; l, at = l+1, at+panelRows {
				dst[at] = 0
			}
		case r == 0 && a.rows == panelRows && !a.trans && panelRows == 8:
			packEight(dst, a)
			return
		case a.trans:
			for l, at, from := 0, r, r; l < d; l, at, from = l+1, at+panelRows, from+a.stride {
				dst[at] = a.data[from]
			}
		default:
			at := r
			for _, v := range a.data[r*a.stride : r*a.stride+d] {
				dst[at] = v
				at += panelRows
			}
		}
	}
}

// packEight is packRows of eight rows.
func packEight(dst []float32, a matrix[float32]) {
	row := func(r int) []float32 { return a.data[r*a.stride:][:a.cols] }
	r0, r1, r2, r3, r4, r5, r6, r7 := row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)
	for l := turn(a.cols, dst, panelRows, a.data, a.stride); l < len(r0); l++ {
		to := (*[8]float32)(dst[8*l:])
		to[0], to[1], to[2], to[3] = r0[l], r1[l], r2[l], r3[l]
		to[4], to[5], to[6], to[7] = r4[l], r5[l], r6[l], r7[l]
	}
}

// packColumns copies b to dst, [b.cols / panelCols, b.rows, panelCols], with zeros for columns that
// are not there.
func packColumns(dst []float32, b matrix[float32]) {
	d := b.rows
	if packRuns(dst, b) {
		return
	}
	for j := 0; j < b.cols; j += panelCols {
		w := min(panelCols, b.cols-j)
		to := dst[j*d : (j+panelCols)*d]
		if b.trans {
			for q := range panelCols {
				at := q
				if q >= w {
					for ; at < len(to); at += panelCols {
						to[at] = 0
					}
					continue
				}
				for _, v := range b.data[(j+q)*b.stride : (j+q)*b.stride+d] {
					to[at] = v
					at += panelCols
				}
			}
			continue
		}
		for l := range d {
			row, src := to[l*panelCols:(l+1)*panelCols], b.data[l*b.stride+j:]
			if w == panelCols {
				*(*[panelCols]float32)(row) = *(*[panelCols]float32)(src)
				continue
			}
			copy(row, src[:w])
			clear(row[w:])
		}
	}
}
