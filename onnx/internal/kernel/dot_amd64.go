package kernel

import (
	"slices"

	"golang.org/x/sys/cpu"
)

// haveDots says that the processor multiplies bytes: AVX-512 with VNNI, and VBMI, which came after it.
var haveDots = haveAVX512 && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI && cpu.X86.HasAVX512VBMI

// dotTile holds the arguments of dotTileZ: its fields lie where the assembly has them.
type dotTile struct {
	steps   int
	a       *int8
	b       *uint8
	offsets *int
	start   *int32
	scale   *float32 // nil: sums are not quantised
	c       *uint8
	stride  int // bytes
	filters int // to write, 1 to 8
	mask    uint32
	saturation
}

// dots is dotsGo. Of each step it reads 32 columns, or 16 where no more are wanted.
func dots(d *dotSums, a []int8, b []uint8, offsets []int, channel, filters, cols int, c []uint8, stride int) {
	if !haveDots {
		dotsGo(d, a, b, offsets, channel, filters, cols, c, stride)
		return
	}
	t := dotTile{steps: len(offsets), a: &a[0], b: &b[0], offsets: &offsets[0], start: &d.start[channel], scale: &d.scale[channel],
		c: &c[0], stride: stride, filters: filters, mask: uint32(1<<cols - 1), saturation: d.saturation}
	_, _, _ = a[len(offsets)*4*dotFilters-1], d.start[channel+dotFilters-1], d.scale[channel+dotFilters-1]
	_ = b[d.furthest+4*((cols+15)&^15)-1]
	last := (filters-1)*stride + cols
	if d.whole {
		t.scale, last = nil, last+3*cols
	}
	_ = c[last-1]
	dotTileZ(&t)
}

// interleave sets the first elements of dst, four bytes each, as interleaveGo does, and returns how many.
func interleave(dst []uint8, rows *[4][]uint8, flip uint8) int {
	n := len(rows[0]) &^ 15
	if !havePanels || n == 0 {
		return 0
	}
	_, _, _, _ = dst[4*n-1], rows[1][n-1], rows[2][n-1], rows[3][n-1]
	interleaveX(n, &dst[0], &rows[0][0], &rows[1][0], &rows[2][0], &rows[3][0], uint32(flip)*0x01010101)
	return n
}

// quantizeRow is quantizeGo.
func quantizeRow(dst []uint8, src []float32, scale float32, s saturation) {
	if !haveDots || len(src) == 0 {
		quantizeGo(dst, src, scale, s)
		return
	}
	_ = dst[len(src)-1]
	quantizeZ(len(src), &dst[0], &src[0], scale, s.lo, s.hi, s.zero)
}

// dequantizeRow is dequantizeGo.
func dequantizeRow(dst []float32, src []uint8, q quantum) {
	if !haveDots || len(src) == 0 {
		dequantizeGo(dst, src, q)
		return
	}
	_ = dst[len(src)-1]
	dequantizeZ(len(src), &dst[0], &src[0], q.scale, q.zero, uint32(q.flip)*0x01010101)
}

// depthTile holds the arguments of depthTileZ.
type depthTile struct {
	lines, width int
	dst, src     *uint8
	down, across int // bytes from line to line, and from sixteen outputs to the next
	groups       int
	offsets      *int
	weights      *int8
	index        *uint8
	flip         uint32
	start        int32
	scale        float32
	saturation
}

// depthPlane is depthPlaneGo.
func depthPlane(d *depthTaps, dst, src []uint8, weights []int8, start int32, scale float32, s saturation) {
	if !haveDots || d.index == nil {
		depthPlaneGo(d, dst, src, weights, start, scale, s)
		return
	}
	_, _, _ = dst[d.lines*d.width-1], src[d.last+(d.width-1)&^15*d.stride+63], weights[4*len(d.offsets)-1]
	depthTileZ(&depthTile{lines: d.lines, width: d.width, dst: &dst[0], src: &src[0], down: d.down, across: 16 * d.stride,
		groups: len(d.offsets), offsets: &d.offsets[0], weights: &weights[0], index: &d.index[0], flip: uint32(d.flip) * 0x01010101,
		start: start, scale: scale, saturation: s})
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
	if !haveDots || len(dst) == 0 || p.a.flip != p.b.flip {
		pairedGo(dst, a, b, p)
		return
	}
	_, _ = a[len(dst)-1], b[len(dst)-1]
	t := pairTile{n: len(dst), dst: &dst[0], a: &a[0], b: &b[0], flip: uint32(p.a.flip) * 0x01010101, zeroA: p.a.zero, zeroB: p.b.zero,
		scaleA: p.a.scale, scaleB: p.b.scale, scale: p.scale, saturation: p.saturation}
	if p.product {
		t.product = 1
	}
	pairedZ(&t)
}

//go:noescape
func dotTileZ(t *dotTile)

//go:noescape
func depthTileZ(t *depthTile)

//go:noescape
func pairedZ(t *pairTile)

//go:noescape
func interleaveX(n int, dst, a, b, c, d *uint8, flip uint32)

//go:noescape
func quantizeZ(n int, dst *uint8, src *float32, scale, lo, hi float32, zero int32)

//go:noescape
func dequantizeZ(n int, dst *float32, src *uint8, scale float32, zero int32, flip uint32)

// lookUp sets dst to the table's entries for src.
func lookUp(dst, src []uint8, table *[256]uint8) {
	if !haveDots || len(src) == 0 {
		lookUpGo(dst, src, table)
		return
	}
	_ = dst[len(src)-1]
	tableZ(len(src), &dst[0], &src[0], &table[0])
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

// splitBytes sets the first elements of even and odd as deinterleaveGo does, n of each at most, and returns how many.
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
