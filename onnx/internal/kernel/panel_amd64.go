package kernel

import (
	"golang.org/x/sys/cpu"
)

const panelRows, panelCols = 8, 32

var (
	havePanels = cpu.X86.HasAVX2 && cpu.X86.HasFMA
	haveAVX512 = cpu.X86.HasAVX512F && havePanels
)

// stridedPanels says that panelStrided is there.
const stridedPanels = true

// boundedTiles says that kernels end with bounds.
const boundedTiles = true

// panelUnit is the number of columns of which kernels read and write multiples. Masks of AVX-512
// name any.
func panelUnit() int {
	if haveAVX512 {
		return 1
	}
	return 16
}

// panelKernel adds a b to c: a [k, panelRows], b [k, panelCols], c panelRows rows of panelCols with
// a stride, of which the first w are wanted. Where from is not nil, c is set to a b plus from, a
// number for each row, and with by.more to c plus that. The sums are the same to the bit with
// either instruction set.
func panelKernel(by manner, k int, a, b, c []float32, stride, w int, from []float32) {
	panelStrided(by, k, 1, a, b, panelCols, c, stride, w, from)
}

// panelStrided is panelKernel for a b whose rows lie bs apart, and for several panels of a, one
// under the other.
func panelStrided(by manner, k, high int, a, b []float32, bs int, c []float32, stride, w int,
	from []float32) {
	wide := w
	if !haveAVX512 {
		wide = min(w+15, panelCols) / 16 * 16
	}
	_, _, _ = a[high*k*panelRows-1], b[(k-1)*bs+wide-1], c[(high*panelRows-1)*stride+wide-1]
	if !haveAVX512 {
		panelShort(by, k, high*panelRows, a, b, bs, c, stride, w, from)
		return
	}
	first, down, start := &c[0], stride, (*float32)(nil)
	switch {
	case by.row != nil:
		first, down = &by.row[:w][0], 0
	case from != nil:
		if start = &from[:high*panelRows][0]; !by.more {
			first = nil
		}
	}
	if w > panelCols {
		third := panelCols
		if bs == panelCols { // that of the next panel
			third *= k
		}
		_ = b[third+(k-1)*bs+w-panelCols-1]
		panel8x49(k, &a[0], &b[0], &b[third], bs, &c[0], stride, start, high, by.limits, first,
			w > wideCols)
		return
	}
	tile := panel8x16
	switch {
	case w > 16 && by.steps:
		tile = panelSteps8x32
	case by.steps:
		tile = panelSteps8x16
	case w > 16:
		tile = panel8x32
	}
	tile(k, &a[0], &b[0], bs, &c[0], stride, start, 1<<w-1, high, by.limits, first, down)
}

// wideCols are the columns of the widest tile, which takes one more as well.
const wideCols = 48

// widest says that panelStrided computes the last n columns of a product at once.
func widest(n int) bool { return haveAVX512 && (n == wideCols || n == wideCols+1) }

// panelShort is panelStrided in AVX2. A tile of six rows reads a row of b once for twelve vectors
// of sums, which hide each other's time. It takes rows of a two by two, as it reaches from one
// panel into the next. The last rows are done by fours.
func panelShort(by manner, k, rows int, a, b []float32, bs int, c []float32, stride, w int,
	from []float32) {
	six, four := tile6x16, panel4x16
	if by.steps {
		six, four = tileSteps6x16, panelSteps4x16
	}
	fours := (3 - rows%6/2) % 3
	at := func(r int) *float32 { return &a[r/panelRows*panelRows*k+r%panelRows] }
	start := func(r int) *float32 {
		if from == nil {
			return nil
		}
		return &from[r]
	}
	for j := 0; j < w; j += 16 {
		r := 0
		for ; r < rows-4*fours; r += 6 {
			six(k, at(r), at(r+2), at(r+4), &b[j], bs, &c[r*stride+j], stride, start(r), by.limits)
		}
		for ; r < rows; r += 4 {
			four(k, at(r), &b[j], bs, &c[r*stride+j], stride, start(r), by.limits)
		}
	}
}

// packRuns is packColumns of rows that lie in runs, with AVX-512; false where it is not done.
func packRuns(dst []float32, b matrix[float32]) bool {
	if !haveAVX512 || b.trans || b.rows == 0 || b.cols == 0 {
		return false
	}
	_, _ = dst[b.rows*padColumns(b.cols)-1], b.data[(b.rows-1)*b.stride+b.cols-1]
	packRunsZ(b.rows, b.cols, &dst[0], &b.data[0], b.stride)
	return true
}

// haveRuns says that tapRuns is there.
func haveRuns() bool { return haveAVX512 }

// tapRuns copies the pieces that each tap reads of split to dst, a row of a panel for each tap.
// Nothing beside them is read or written.
func tapRuns(dst, split []float32, offsets []int, pieces []tapPiece) {
	if len(offsets) > 0 && len(pieces) > 0 {
		tapRunsZ(&dst[0], &split[0], &offsets[0], len(offsets), &pieces[0], len(pieces))
	}
}

//go:noescape
func tapRunsZ(dst, split *float32, offsets *int, taps int, pieces *tapPiece, n int)

//go:noescape
func packRunsZ(rows, cols int, dst, src *float32, stride int)

// panelColumn adds to sums the product of panels of a, [k, panelRows] each and as many as sums has
// rows for, one or columnPanels, and of the first column of b, whose rows lie bs apart.
func panelColumn(k int, a, b []float32, bs int, sums []float32) {
	_, _ = a[k*len(sums)-1], b[(k-1)*bs]
	if len(sums) == panelRows {
		column8(k, &a[0], &b[0], bs, &sums[0])
		return
	}
	_ = sums[columnPanels*panelRows-1]
	column32(k, &a[0], &b[0], bs, &sums[0])
}

// panelRow adds the product of a, [k], and of a panel of b to sums, of which there are at most
// panelCols.
func panelRow(k int, a, b, sums []float32) {
	_, _ = a[k-1], b[k*panelCols-1]
	if len(sums) >= panelCols {
		row32(k, &a[0], &b[0], &sums[0])
		return
	}
	var all [panelCols]float32
	copy(all[:], sums)
	row32(k, &a[0], &b[0], &all[0])
	copy(sums, all[:])
}

//go:noescape
func row32(k int, a, b, sums *float32)

// panelFew sets out to start plus the product of two panels of a, [k, panelRows] each, and the
// first fewColumns columns of b.
func panelFew(k int, one, two, b []float32, bs int, start *[fewColumns][2 * panelRows]float32,
	out *[2 * panelRows][fewColumns]float32) {
	_, _, _ = one[k*panelRows-1], two[k*panelRows-1], b[(k-1)*bs+fewColumns-1]
	few16x4(k, &one[0], &two[0], &b[0], bs, start, out)
}

//go:noescape
func few16x4(k int, one, two, b *float32, bs int, start *[fewColumns][2 * panelRows]float32,
	out *[2 * panelRows][fewColumns]float32)

//go:noescape
func column8(k int, a, b *float32, bs int, sums *float32)

//go:noescape
func column32(k int, a, b *float32, bs int, sums *float32)

//go:noescape
func panel8x32(k int, a, b *float32, bs int, c *float32, stride int, from *float32,
	mask uint32, high int, limits *[2]float32, start *float32, down int)

//go:noescape
func panel8x49(k int, a, b, third *float32, bs int, c *float32, stride int, from *float32, high int,
	limits *[2]float32, start *float32, last bool)

//go:noescape
func panel8x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32,
	mask uint32, high int, limits *[2]float32, start *float32, down int)

//go:noescape
func tile6x16(k int, one, two, three, b *float32, bs int, c *float32, stride int, from *float32,
	limits *[2]float32)

//go:noescape
func panel4x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32,
	limits *[2]float32)

// The following round every product before it is added.

//go:noescape
func panelSteps8x32(k int, a, b *float32, bs int, c *float32, stride int, from *float32,
	mask uint32, high int, limits *[2]float32, start *float32, down int)

//go:noescape
func panelSteps8x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32,
	mask uint32, high int, limits *[2]float32, start *float32, down int)

//go:noescape
func tileSteps6x16(k int, one, two, three, b *float32, bs int, c *float32, stride int,
	from *float32, limits *[2]float32)

//go:noescape
func panelSteps4x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32,
	limits *[2]float32)
