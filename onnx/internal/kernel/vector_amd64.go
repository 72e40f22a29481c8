package kernel

import (
	"math"
	"slices"
)

// winogradLeast is how many channels a convolution has at least to be done in tiles: with fewer,
// products are too thin to be worth the way there and back.
const winogradLeast = 16

// ending is the work of finishZ on rows of n numbers, which lie stride bytes apart: dst =
// curve(scale src + shift). Scales and shifts of two rows are step bytes apart.
type ending struct {
	dst, src, scale, shift *float32
	rows, n, stride, step  int
	curve                  curve
	lo, hi                 float32
}

// finishAll does the work of an ending in the widest vectors, with the same bits in either.
func finishAll(e *ending) {
	if haveAVX512 {
		finishZ(e)
		return
	}
	finishY(e)
}

// unchanged are the scale and the shift that leave every number as it is, -0 included.
var unchanged = [2]float32{1, negativeZero}

// curveRow sets dst to the curve of src. dst may be src. The processor must have vectors: see
// vectorMath.
func curveRow(c curve, dst, src []float32) {
	if len(src) > 0 {
		_ = dst[len(src)-1]
		finishAll(&ending{dst: &dst[0], src: &src[0], scale: &unchanged[0], shift: &unchanged[1],
			rows: 1, n: len(src), curve: c})
	}
}

// finishRows is apply of a, or returns false. Assembly checks no bounds, so the furthest element is
// looked at first.
func finishRows(a *after, rows matrix[float32], channel int) bool {
	if !havePanels || rows.rows == 0 || rows.cols == 0 {
		return false
	}
	_ = rows.data[(rows.rows-1)*rows.stride+rows.cols-1]
	if rows.cols == 1 && rows.stride == 1 && a.scale == nil { // a column that lies as a row does
		rows.rows, rows.cols = 1, rows.rows
	}
	e := ending{dst: &rows.data[0], src: &rows.data[0], scale: &unchanged[0], shift: &unchanged[1],
		rows: rows.rows, n: rows.cols,
		stride: 4 * rows.stride, curve: a.curve, lo: a.lo, hi: a.hi}
	if a.scale != nil {
		_, _ = a.scale[channel+rows.rows-1], a.shift[channel+rows.rows-1]
		e.scale, e.shift, e.step = &a.scale[channel], &a.shift[channel], 4
	}
	finishAll(&e)
	return true
}

// scaleRows sets dst to rows of src, as many as there are scales, times theirs, or returns false.
// Without scales it does nothing, and its answer is whether it would.
func scaleRows(dst, src, scales []float32) bool {
	if !havePanels || len(scales) == 0 {
		return havePanels
	}
	n, inf := len(src)/len(scales), float32(math.Inf(1))
	_ = dst[n*len(scales)-1]
	for i := range scales {
		finishAll(&ending{dst: &dst[i*n], src: &src[i*n], scale: &scales[i], shift: &unchanged[1],
			rows: 1, n: n, lo: -inf, hi: inf})
	}
	return true
}

// laneSums returns the sum of v as [sum] has it, or false.
func laneSums(v []float32) (float64, bool) {
	if !havePanels || len(v) == 0 {
		return 0, false
	}
	if haveAVX512 {
		return laneSumsZ(len(v), &v[0]), true
	}
	var last [sumLanes]float32
	rounds, rest := len(v)/sumLanes, (*[sumLanes]float32)(nil)
	if copy(last[:], v[rounds*sumLanes:]) > 0 {
		rest = &last
	}
	return laneSumsY(rounds, &v[0], rest), true
}

// limit is limitGo.
func limit(dst, src []float32, scale, shift, lo, hi float32) {
	if !havePanels {
		limitGo(dst, src, scale, shift, lo, hi)
		return
	}
	dst = dst[:len(src)]
	n := len(src) &^ 7
	if n > 0 {
		limitY(n, &dst[0], &src[0], scale, shift, lo, hi)
	}
	limitGo(dst[n:], src[n:], scale, shift, lo, hi)
}

// tapSums is tapSumsGo for a dst whose length is a multiple of tapRun; unless steps is set, a
// product may be added before it is rounded.
func tapSums(dst, src []float32, offsets []int, weights []float32, start float32, steps bool) {
	if !havePanels || len(dst) == 0 || len(weights) == 0 {
		tapSumsGo(dst, src, offsets, weights, start)
		return
	}
	_, _ = src[slices.Max(offsets)+len(dst)-1], weights[:len(offsets)]
	sums := tapSumsY
	if steps {
		sums = tapStepsY
	}
	sums(len(offsets), len(dst), &dst[0], &src[0], &offsets[0], &weights[0], start)
}

// tapMaxima is tapMaximaGo for a dst whose length is a multiple of tapRun.
func tapMaxima(dst, src []float32, offsets []int) {
	if !havePanels || len(dst) == 0 {
		tapMaximaGo(dst, src, offsets)
		return
	}
	_ = src[slices.Max(offsets)+len(dst)-1]
	tapMaximaY(len(offsets), len(dst), &dst[0], &src[0], &offsets[0])
}

// deinterleave sets n elements of lines of even and odd, that far apart, as deinterleaveGo does, or
// none: it returns how many. Where even and odd are one, they get the even ones.
func deinterleave(lines, n int, even, odd []float32, apart int, src []float32, from int) int {
	if !havePanels || n < 4 || lines == 0 {
		return 0
	}
	_, _, _ = even[(lines-1)*apart+n-1], odd[(lines-1)*apart+n-1], src[(lines-1)*from+2*n-1]
	run := deinterleaveX
	if haveAVX512 {
		run = deinterleaveZ
	}
	run(lines, n, &even[0], &odd[0], apart, &src[0], from)
	return n
}

// tilesIn is tilesInGo; of every line dst gets up to seven elements more.
func tilesIn(dst []float32, ds int, src []float32, line, odd, n int) {
	if !havePanels {
		tilesInGo(dst, ds, src, line, odd, n)
		return
	}
	more := (n + 7) &^ 7
	_, _ = dst[15*ds+more-1], src[odd+3*line+more]
	tilesInY(n, &dst[0], ds, &src[0], line, odd)
}

// tilesOut is tilesOutGo; of every line dst gets up to fourteen elements more, and as many of m are
// read as it gets.
func tilesOut(dst []float32, line int, m []float32, ms, n int, f *finish) {
	if !havePanels {
		tilesOutGo(dst, line, m, ms, n, f)
		return
	}
	more := (n + 7) &^ 7
	_, _ = dst[line+2*more-1], m[15*ms+more-1]
	tilesOutY(n, &dst[0], line, &m[0], ms, f)
}

// pairs sets the first elements of dst to those of a op b, of which either may be one that is
// repeated, and returns how many.
func pairs(op operation, dst, a, b []float32) int {
	n := len(dst) &^ 7
	if !havePanels || n == 0 {
		return 0
	}
	var one, two [8]float32
	as, bs := 32, 32
	if len(a) < len(dst) {
		fillRange(one[:], a[0])
		a, as = one[:], 0
	}
	if len(b) < len(dst) {
		fillRange(two[:], b[0])
		b, bs = two[:], 0
	}
	pairsY(int(op), n, &dst[0], &a[0], &b[0], as, bs)
	return n
}

// vectorMath reports whether the processor has the instructions of softmaxRow, expRow, erfRow,
// tanhRow and curveRow.
func vectorMath() bool { return havePanels }

// softmaxRows sets lines of n numbers of dst to the softmaxes of those of src, in float32, with the
// same bits in either instruction set.
func softmaxRows(dst, src []float32, n int) {
	_ = dst[len(src)-1]
	if haveAVX512 {
		softmaxZ(len(src)/n, n, &dst[0], &src[0])
		return
	}
	for i := 0; i < len(src); i += n {
		softmaxRow(dst[i:i+n], src[i:i+n])
	}
}

// softmaxRow is softmaxRows of one line, in AVX2. src is not empty. The numbers after the last
// whole vector are done in Go, or in a vector of their own.
func softmaxRow(dst, src []float32) {
	top := src[0]
	var lanes [8]float32
	fillRange(lanes[:], top)
	n := len(src) &^ 7
	if n > 0 {
		largestY(n, &src[0], &lanes)
	}
	for _, v := range lanes {
		top = max(top, v)
	}
	for _, v := range src[n:] {
		top = max(top, v)
	}
	sum := exponentials(dst, src, top)
	limit(dst, dst, 1/sum, negativeZero, float32(math.Inf(-1)), float32(math.Inf(1)))
}

// exponentials sets dst to those of src - shift, within 2e-7 of themselves, and returns their sum.
// Eight sums run side by side, in an order that depends on the length alone.
func exponentials(dst, src []float32, shift float32) (sum float32) {
	var lanes, rest [8]float32
	n := len(src) &^ 7
	if n > 0 {
		expY(n, &dst[0], &src[0], shift, &lanes)
	}
	if n < len(src) {
		fillRange(rest[:], float32(math.Inf(-1))) // of which the exponential is 0
		copy(rest[:], src[n:])
		expY(8, &rest[0], &rest[0], shift, &lanes)
		copy(dst[n:len(src)], rest[:])
	}
	for _, v := range lanes {
		sum += v
	}
	return sum
}

// expRow sets dst to the exponentials of src.
func expRow(dst, src []float32) { exponentials(dst, src, 0) }

// quotient is an odd function that goes to 1 as x P(x²) / Q(x²): the x from which on it is 1, the
// coefficients of P, and those of Q but for the first, which is 1. P has six coefficients, and Q
// five beside its first.
type quotient [12]float32

// Both fitted by least squares again and again, weighted by where they missed most, to 2e-8 and
// 4e-11 of themselves.
var (
	erfQuotient = quotient{3.925, 1.128379145809924, 0.19056845098734207, 0.052766548314841635,
		0.00377162019341907, 0.00028485014012212605, 2.046591893057803e-06,
		0.5022196243065434, 0.11417280284721164, 0.014981323527138466, 0.0011636828254073237,
		3.805394398196896e-05}
	tanhQuotient = quotient{9, 0.999999999964583, 0.14099943079595062, 0.004426927315606588,
		4.2299018183319436e-05, 1.1132196651277254e-07, 3.6836105713076436e-11,
		0.47433276373981137, 0.02920451593947485, 0.0005010225632650817, 2.606208709821285e-06,
		2.956603858544051e-09}
)

// row sets dst to the function of src, within 4e-7 of itself. dst may be src; both have the same
// length.
func (q *quotient) row(dst, src []float32) {
	n := len(src) &^ 7
	if n > 0 {
		quotientY(n, &dst[0], &src[0], q)
	}
	if n < len(src) {
		var rest [8]float32
		copy(rest[:], src[n:])
		quotientY(8, &rest[0], &rest[0], q)
		copy(dst[n:len(src)], rest[:])
	}
}

// lineEnds is the work of endsZ on rows of n numbers, which lie stride bytes apart: their products
// with scale, a number for each column, where that is not nil, and then GELU, where erf isn't.
type lineEnds struct {
	dst, src        *float32
	rows, n, stride int
	scale           *float32
	erf             *quotient
}

// endRows does the rest of l to a part of an output, from a column on, or returns false.
func endRows(l *lines, part matrix[float32], column int) bool {
	if !haveAVX512 || part.rows == 0 || part.cols == 0 {
		return false
	}
	_ = part.data[(part.rows-1)*part.stride+part.cols-1]
	e := lineEnds{dst: &part.data[0], src: &part.data[0], rows: part.rows, n: part.cols,
		stride: 4 * part.stride}
	if l.scale != nil {
		e.scale = &l.scale[column:][:part.cols][0]
	}
	if l.gelu {
		e.erf = &erfQuotient
	}
	endsZ(&e)
	return true
}

// geluRow sets dst to x / 2 (1 + erf(x / sqrt 2)), in float32. dst may be x.
func geluRow(dst, x []float32) {
	n := len(x) &^ 7
	if haveAVX512 && len(x) > 0 {
		_ = dst[len(x)-1]
		endsZ(&lineEnds{dst: &dst[0], src: &x[0], rows: 1, n: len(x), erf: &erfQuotient})
		return
	}
	if n > 0 {
		_ = dst[n-1]
		geluY(n, &dst[0], &x[0], &erfQuotient)
	}
	if n < len(x) {
		var rest [8]float32
		copy(rest[:], x[n:])
		geluY(8, &rest[0], &rest[0], &erfQuotient)
		copy(dst[n:len(x)], rest[:])
	}
}

// erfRow and tanhRow set dst to the function of src.
func erfRow(dst, src []float32)  { erfQuotient.row(dst, src) }
func tanhRow(dst, src []float32) { tanhQuotient.row(dst, src) }

// In the following n is a multiple of 8 and at least that, or of tapRun, and there is at least one
// tap. That of the tiles is any number above 0.

//go:noescape
func limitY(n int, dst, src *float32, scale, shift, lo, hi float32)

//go:noescape
func tapSumsY(taps, n int, dst, src *float32, offsets *int, weights *float32, start float32)

//go:noescape
func tapStepsY(taps, n int, dst, src *float32, offsets *int, weights *float32, start float32)

//go:noescape
func tapMaximaY(taps, n int, dst, src *float32, offsets *int)

//go:noescape
func deinterleaveX(lines, n int, even, odd *float32, apart int, src *float32, from int)

//go:noescape
func tilesInY(n int, dst *float32, ds int, src *float32, line, odd int)

//go:noescape
func tilesOutY(n int, dst *float32, line int, m *float32, ms int, f *finish)

//go:noescape
func pairsY(op, n int, dst, a, b *float32, as, bs int)

//go:noescape
func expY(n int, dst, src *float32, shift float32, sums *[8]float32)

//go:noescape
func largestY(n int, src *float32, to *[8]float32)

//go:noescape
func quotientY(n int, dst, src *float32, of *quotient)

//go:noescape
func geluY(n int, dst, src *float32, erf *quotient)

//go:noescape
func endsZ(e *lineEnds)

//go:noescape
func softmaxZ(rows, n int, dst, src *float32)

//go:noescape
func finishZ(e *ending)

//go:noescape
func finishY(e *ending)

//go:noescape
func laneSumsY(rounds int, src *float32, rest *[sumLanes]float32) float64

//go:noescape
func laneSumsZ(n int, src *float32) float64

//go:noescape
func deinterleaveZ(lines, n int, even, odd *float32, apart int, src *float32, from int)
