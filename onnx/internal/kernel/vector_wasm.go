package kernel

import "slices"

// FinishArgs are rows of N numbers that lie Stride apart: Dst = min(max(scale Src + shift, Lo),
// Hi). Scales and shifts of two rows lie Step apart.
type FinishArgs struct {
	Dst, Src, Scale, Shift *float32
	Rows, N, Stride, Step  int // Rows and N above 0
	Lo, Hi                 float32
}

// TapArgs are tapSumsGo's; N is a multiple of tapRun, and both are above 0.
type TapArgs struct {
	Dst, Src *float32
	Offsets  *int
	Weights  *float32
	N, Taps  int
	Start    float32
}

// PairArgs are N numbers of A op B, op being sums, differences, products or quotients: a multiple
// of four above 0. AStep and BStep are 16 bytes, or 0 where four numbers are repeated.
type PairArgs struct {
	Dst, A, B           *float32
	N, AStep, BStep, Op int
}

// DeinterleaveArgs are deinterleave's; N is a multiple of four, and both are above 0.
type DeinterleaveArgs struct {
	Even, Odd, Src         *float32
	Lines, N, Stride, From int
}

var (
	// One goroutine runs at a time, so that one set of arguments serves all calls.
	finishArgs       FinishArgs
	tapArgs          TapArgs
	pairArgs         PairArgs
	deinterleaveArgs DeinterleaveArgs

	unchanged = [2]float32{1, negativeZero}
	limiting  [2]float32
	spread    [2][4]float32
)

// limit is limitGo.
func limit(dst, src []float32, scale, shift, lo, hi float32) {
	if lent == nil || len(src) == 0 {
		limitGo(dst, src, scale, shift, lo, hi)
		return
	}
	// The furthest elements are looked at first, since the lent code checks no bounds.
	_ = dst[len(src)-1]
	limiting = [2]float32{scale, shift}
	finishArgs = FinishArgs{Dst: &dst[0], Src: &src[0], Scale: &limiting[0], Shift: &limiting[1],
		Rows: 1, N: len(src), Lo: lo, Hi: hi}
	lent.Finish(&finishArgs)
}

// finishRows is apply of a, or returns false.
func finishRows(a *after, rows matrix[float32], channel int) bool {
	if lent == nil || a.curve != bounds || rows.rows == 0 || rows.cols == 0 {
		return false
	}
	_ = rows.data[(rows.rows-1)*rows.stride+rows.cols-1]
	finishArgs = FinishArgs{Dst: &rows.data[0], Src: &rows.data[0], Scale: &unchanged[0],
		Shift: &unchanged[1], Rows: rows.rows, N: rows.cols,
		Stride: rows.stride, Lo: a.lo, Hi: a.hi}
	if a.scale != nil {
		_, _ = a.scale[channel+rows.rows-1], a.shift[channel+rows.rows-1]
		finishArgs.Scale, finishArgs.Shift, finishArgs.Step = &a.scale[channel],
			&a.shift[channel], 1
	}
	lent.Finish(&finishArgs)
	return true
}

// tapSums is tapSumsGo for a dst whose length is a multiple of tapRun.
func tapSums(dst, src []float32, offsets []int, weights []float32, start float32, _ bool) {
	if lent == nil || len(dst) == 0 || len(weights) == 0 {
		tapSumsGo(dst, src, offsets, weights, start)
		return
	}
	_, _, _ = src[slices.Max(offsets)+len(dst)-1], src[slices.Min(offsets)], offsets[:len(weights)]
	tapArgs = TapArgs{Dst: &dst[0], Src: &src[0], Offsets: &offsets[0], Weights: &weights[0],
		N: len(dst), Taps: len(weights), Start: start}
	lent.Taps(&tapArgs)
}

// deinterleave sets the first elements of lines of even and odd, that far apart, as deinterleaveGo
// does, and returns how many of n.
func deinterleave(lines, n int, even, odd []float32, stride int, src []float32, from int) int {
	// Whole vectors of four are done, and the caller does the rest.
	if n &^= 3; lent == nil || n == 0 || lines == 0 {
		return 0
	}
	_, _, _ = even[(lines-1)*stride+n-1], odd[(lines-1)*stride+n-1], src[(lines-1)*from+2*n-1]
	deinterleaveArgs = DeinterleaveArgs{Even: &even[0], Odd: &odd[0], Src: &src[0], Lines: lines,
		N: n, Stride: stride, From: from}
	lent.Deinterleave(&deinterleaveArgs)
	return n
}

// pairs sets the first elements of dst to those of a op b, of which either may be one that is
// repeated, and returns how many.
func pairs(op operation, dst, a, b []float32) int {
	n := len(dst) &^ 3
	if lent == nil || n == 0 {
		return 0
	}
	pairArgs = PairArgs{Dst: &dst[0], A: &a[0], B: &b[0], N: n, AStep: 16, BStep: 16, Op: int(op)}
	if len(a) < len(dst) {
		fillRange(spread[0][:], a[0])
		pairArgs.A, pairArgs.AStep = &spread[0][0], 0
	}
	if len(b) < len(dst) {
		fillRange(spread[1][:], b[0])
		pairArgs.B, pairArgs.BStep = &spread[1][0], 0
	}
	lent.Pairs(&pairArgs)
	return n
}
