package kernel

import (
	"slices"

	"golang.org/x/sys/cpu"
)

// haveDots says that the processor multiplies bytes: AVX-512 with VNNI, and VBMI, which came after
// it. BMI2, which masks of columns take, may be hidden by a hypervisor or by GODEBUG.
var haveDots = dotsThere()

// dotsThere asks for every extension that the kernels of bytes in AVX-512 use.
func dotsThere() bool {
	return haveAVX512 && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI &&
		cpu.X86.HasAVX512VBMI && cpu.X86.HasBMI2
}

// haveShortDots says that it multiplies bytes in shorter vectors, and haveWords that it has those,
// and multiplies words in them.
var (
	haveWords     = cpu.X86.HasAVX2
	haveShortDots = cpu.X86.HasAVXVNNI && haveWords
)

// dotBytes and depthBytes are the bytes of a weight as [dots] and [depthPlane] read it.
func dotBytes() int {
	if haveShortDots {
		return 1
	}
	return depthBytes()
}

// Words are for AVX2, which multiplies pairs of 16 bits: products of bytes would saturate there.
func depthBytes() int {
	if haveDots || !haveWords {
		return 1
	}
	return 2
}

// dotTile holds the arguments of dotTileZ: its fields lie where the assembly has them.
type dotTile struct {
	steps   int
	a       *int8
	b       *uint8
	offsets *int
	start   *int32
	scale   *float32 // nil: sums are not quantised
	c       *uint8
	stride  int    // bytes
	filters int    // to write; of dotTileY: 1 to 8
	cols    uint32 // columns; of dotTileY: 1 to 8
	saturation
	longer uint32 // of dotTileZ: tiles of 49 columns, not 48, before the others
}

// dots is dotsGo, with VNNI of any number of filters, in panels one after the other, and columns.
// Of each step it reads the columns in whole sixteens.
func dots(d *dotSums, a []int8, b []uint8, offsets []int, channel, filters, cols int,
	c []uint8, stride int) {
	if !haveDots && !haveWords {
		dotsGo(d, a, b, offsets, channel, filters, cols, c, stride)
		return
	}
	t := dotTile{steps: len(offsets), a: &a[0], b: &b[0], offsets: &offsets[0],
		start: &d.start[channel], scale: &d.scale[channel],
		c: &c[0], stride: stride, filters: filters, cols: uint32(cols), saturation: d.saturation}
	high := (filters + dotFilters - 1) / dotFilters * dotFilters
	_, _, _ = a[len(offsets)*4*high*dotBytes()-1], d.start[channel+high-1], d.scale[channel+high-1]
	_ = b[d.furthest+4*((cols+15)&^15)-1]
	// Assembly checks no bounds: the furthest elements of each operand are looked at first.
	last := (filters-1)*stride + cols
	if d.whole {
		t.scale, last = nil, last+3*cols
	}
	_ = c[last-1]
	if haveDots {
		if !d.whole {
			t.longer = uint32(longerTiles(cols))
		}
		dotTileZ(&t)
		return
	}
	size, words, most := 1, dotBytes() == 2, dotFilters
	if d.whole {
		size = 4
	}
	if words {
		most = dotFilters / 2
	}
	for p := 0; p < cols; p += 8 {
		t.b, t.cols = &b[4*p], uint32(min(cols-p, 8))
		for f := 0; f < filters; f += most {
			t.a, t.start, t.filters, t.c = &a[f*8], &d.start[channel+f], min(filters-f, most),
				&c[f*stride+p*size]
			if !d.whole {
				t.scale = &d.scale[channel+f]
			}
			dotTileY(&t, words)
		}
	}
}

// rowTile holds the arguments of dotRowsZ.
type rowTile struct {
	steps, groups int
	a             *int8
	x             *uint8
	wide          int // bytes from row to row of x
	start         *int32
	scale         *float32 // nil: sums are not quantised
	c             *uint8
	stride        int    // bytes
	rows          int    // to write of each group, 1 to 8
	mask          uint32 // of columns
	saturation
}

// dotRows multiplies rows of x, of unsigned bytes in whole quads, by a panel of columns. Rows are
// done eight at a time; the last eight may overlap those before, which writes the same numbers
// twice.
func dotRows(r *integerRun, x []uint8, panel, first, rows int) {
	wide, from := (r.channels+3)/4*4, panel*dotColumns
	cols := min(dotColumns, r.filters-from)
	a, c := r.f.panels[from*wide:][:dotColumns*wide], r.out[(first*r.filters+from)*r.elem:]
	t := rowTile{steps: wide / 4, groups: rows / 8, a: &a[0], wide: wide,
		start:  &r.sums.start[from : from+dotColumns][0],
		scale:  &r.sums.scale[from : from+dotColumns][0],
		stride: r.filters * r.elem, rows: 8, mask: uint32(1<<cols - 1),
		saturation: r.sums.saturation}
	if r.sums.whole {
		t.scale = nil
	}
	x = x[first*wide:][:rows*wide]
	_ = c[(rows-1)*t.stride+cols*r.elem-1]
	if rows >= 8 {
		t.x, t.c = &x[0], &c[0]
		dotRowsZ(&t)
		if rows%8 == 0 {
			return
		}
		t.groups, t.x, t.c = 1, &x[(rows-8)*wide], &c[(rows-8)*t.stride]
		dotRowsZ(&t)
		return
	}
	t.groups, t.rows, t.wide = 1, 1, 0
	for p := range rows {
		t.x, t.c = &x[p*wide], &c[p*t.stride]
		dotRowsZ(&t)
	}
}

//go:noescape
func dotRowsZ(t *rowTile)

// interleave sets the first elements of dst, four bytes each, as interleaveGo does, and returns how
// many.
func interleave(dst []uint8, rows *[4][]uint8, flip uint8) int {
	n := len(rows[0]) &^ 15
	if !havePanels || n == 0 {
		return 0
	}
	_, _, _, _ = dst[4*n-1], rows[1][n-1], rows[2][n-1], rows[3][n-1]
	interleaveX(n, &dst[0], &rows[0][0], &rows[1][0], &rows[2][0], &rows[3][0],
		uint32(flip)*0x01010101)
	return n
}

// copyLines is copyLinesGo, without a call for each line.
func copyLines(dst, src []uint8, lines, n, to, from int) {
	if !haveDots || n < 1 || lines < 1 {
		copyLinesGo(dst, src, lines, n, to, from)
		return
	}
	_, _ = dst[(lines-1)*to+n-1], src[(lines-1)*from+n-1]
	linesZ(lines, n, &dst[0], &src[0], to, from, 1, new(int), 0)
}

// gather is gatherGo, without a call for each tap.
func (g *gathering) gather(dst, src []uint8) {
	if !haveDots || g.n < 1 || g.lines < 1 {
		g.gatherGo(dst, src)
		return
	}
	_ = dst[(len(g.offsets)-1)*g.step+g.lines*g.n-1]
	_ = src[slices.Max(g.offsets)+(g.lines-1)*g.from+g.n-1]
	linesZ(g.lines, g.n, &dst[0], &src[0], g.n, g.from, len(g.offsets), &g.offsets[0], g.step)
}

//go:noescape
func linesZ(lines, n int, dst, src *uint8, to, from, taps int, offsets *int, step int)

// copy is copyGo. odd may be nil where h.odds is 0.
func (h *byTurns) copy(even, odd, src []uint8) {
	if !haveDots || h.lines < 1 {
		h.copyGo(even, odd, src)
		return
	}
	last := (h.lines - 1) * h.to
	_, _ = even[last+h.evens-1], src[(h.lines-1)*h.from+max(2*h.evens-2, 2*h.odds-1)]
	if h.odds == 0 {
		odd = even // nothing is written there
	} else {
		_ = odd[last+h.odds-1]
	}
	byTurnsZ(h, &even[0], &odd[0], &src[0])
}

//go:noescape
func byTurnsZ(h *byTurns, even, odd, src *uint8)

// inVectors returns how many of n elements the processor's vectors take: with AVX-512 all of them,
// else whole vectors of the given width.
func inVectors(n, width int) int {
	if haveDots {
		return n
	} else if haveWords {
		return n / width * width
	}
	return 0
}

// quantizeRow is quantizeGo.
func quantizeRow(dst []uint8, src []float32, scale float32, s saturation) {
	done := inVectors(len(src), 8)
	if done == 0 {
		quantizeGo(dst, src, scale, s)
		return
	}
	_ = dst[len(src)-1]
	if haveDots {
		quantizeZ(done, &dst[0], &src[0], scale, s.lo, s.hi, s.zero)
		return
	}
	quantizeY(done, &dst[0], &src[0], scale, s.lo, s.hi, s.zero)
	quantizeGo(dst[done:], src[done:], scale, s)
}

// dequantizeRow is dequantizeGo.
func dequantizeRow(dst []float32, src []uint8, q quantum) {
	done := inVectors(len(src), 8)
	if done == 0 {
		dequantizeGo(dst, src, q)
		return
	}
	_ = dst[len(src)-1]
	if haveDots {
		dequantizeZ(done, &dst[0], &src[0], q.scale, q.zero, uint32(q.flip)*0x01010101)
		return
	}
	dequantizeY(done, &dst[0], &src[0], q.scale, q.zero, uint32(q.flip)*0x01010101)
	dequantizeGo(dst[done:], src[done:], q)
}

// depthTile holds the arguments of depthTileY.
type depthTile struct {
	lines, width int
	dst, src     *uint8
	down, across int // bytes from line to line, and from sixteen outputs to the next
	groups       int
	offsets      *int
	weights      *int8
	flip         uint32
	start        int32
	scale        float32
	saturation
	dilation int
}

// depthPlane is depthPlaneGo.
func depthPlane(d *depthTaps, dst, src []uint8, weights []int8, start int32,
	scale float32, s saturation) {
	words := !haveDots && haveWords
	if words && d.stride > 2 { // hardly any network has it
		short := make([]int8, len(weights)/2)
		for i := range short {
			short[i] = weights[2*i]
		}
		weights = short
	}
	if !words || d.stride > 2 {
		depthPlaneGo(d, dst, src, weights, start, scale, s)
		return
	}
	_, _ = dst[d.lines*d.width-1], weights[4*len(d.offsets)*depthBytes()-1]
	_ = src[d.last+((d.width-1)&^15+16)*d.stride+3*d.dilation-1]
	depthTileY(&depthTile{lines: d.lines, width: d.width, dst: &dst[0], src: &src[0], down: d.down,
		across: 16 * d.stride,
		groups: len(d.offsets), offsets: &d.offsets[0], weights: &weights[0],
		flip:  uint32(d.flip) * 0x01010101,
		start: start, scale: scale, saturation: s, dilation: d.dilation})
}

// pairTile holds the arguments of pairedZ.
type pairTile struct {
	n              int
	dst, a, b      *uint8
	flip           uint32
	zeroA, zeroB   int32
	scaleA, scaleB float32
	scale          float32
	saturation
	product uint32
}

// paired is pairedGo.
func paired(dst, a, b []uint8, p *pairing) {
	done := inVectors(len(dst), 8)
	if done == 0 || haveDots && done < 16 || p.a.flip != p.b.flip {
		pairedGo(dst, a, b, p)
		return
	}
	_, _ = a[len(dst)-1], b[len(dst)-1]
	t := pairTile{n: done, dst: &dst[0], a: &a[0], b: &b[0], flip: uint32(p.a.flip) * 0x01010101,
		zeroA: p.a.zero, zeroB: p.b.zero,
		scaleA: p.a.scale, scaleB: p.b.scale, scale: p.scale, saturation: p.saturation}
	if p.product {
		t.product = 1
	}
	if haveDots {
		pairedZ(&t)
		return
	}
	pairedY(&t)
	pairedGo(dst[done:], a[done:], b[done:], p)
}

//go:noescape
func dotTileZ(t *dotTile)

//go:noescape
func depthTileZ(t *stripsTile)

//go:noescape
func pairedZ(t *pairTile)

//go:noescape
func interleaveX(n int, dst, a, b, c, d *uint8, flip uint32)

//go:noescape
func quantizeZ(n int, dst *uint8, src *float32, scale, lo, hi float32, zero int32)

//go:noescape
func dequantizeZ(n int, dst *float32, src *uint8, scale float32, zero int32, flip uint32)

// lookUp sets dst to the table's entries for src. dst may be src.
func lookUp(dst, src []uint8, table *[256]uint8) {
	done := inVectors(len(src), 64)
	if done == 0 {
		lookUpGo(dst, src, table)
		return
	}
	_ = dst[len(src)-1]
	if haveDots {
		tableZ(done, &dst[0], &src[0], &table[0])
		return
	}
	tableY(done, &dst[0], &src[0], &table[0])
	lookUpGo(dst[done:], src[done:], table)
}

// tapMaximaBytes is tapMaximaBytesGo for a dst whose length is a multiple of tapRun.
func tapMaximaBytes(dst, src []uint8, offsets []int, flip uint8) {
	if !havePanels || len(dst) == 0 {
		tapMaximaBytesGo(dst, src, offsets, flip)
		return
	}
	_ = src[slices.Max(offsets)+len(dst)-1]
	maximaY(len(offsets), len(dst), &dst[0], &src[0], &offsets[0], uint32(flip)*0x01010101)
}

// splitBytes sets the first elements of even and odd as deinterleaveGo does, n of each at most, and
// returns how many.
func splitBytes(n int, even, odd, src []uint8) int {
	if n &^= 15; !havePanels || n <= 0 {
		return 0
	}
	_, _, _ = even[n-1], odd[n-1], src[2*n-1]
	splitBytesX(n, &even[0], &odd[0], &src[0])
	return n
}

//go:noescape
func tableZ(n int, dst, src, table *uint8)

//go:noescape
func maximaY(taps, n int, dst, src *uint8, offsets *int, flip uint32)

//go:noescape
func splitBytesX(n int, even, odd, src *uint8)

//go:noescape
func dotTileY(t *dotTile, words bool)

//go:noescape
func depthTileY(t *depthTile)

//go:noescape
func pairedY(t *pairTile)

//go:noescape
func quantizeY(n int, dst *uint8, src *float32, scale, lo, hi float32, zero int32)

//go:noescape
func dequantizeY(n int, dst *float32, src *uint8, scale float32, zero int32, flip uint32)

//go:noescape
func tableY(n int, dst, src, table *uint8)
