package kernel

import "slices"

// limit is limitGo.
func limit(dst, src []float32, scale, shift, lo, hi float32) {
	n := 0
	if dst = dst[:len(src)]; havePanels && len(src) >= 8 {
		n = len(src) &^ 7
		limitY(n, &dst[0], &src[0], scale, shift, lo, hi)
	}
	for i, v := range src[n:] {
		if v = scale*v + shift; v < lo {
			v = lo
		}
		if v > hi {
			v = hi
		}
		dst[n+i] = v
	}
}

// tapSums is tapSumsGo for a dst whose length is a multiple of tapRun.
func tapSums(dst, src []float32, offsets []int, weights []float32, start float32) {
	if !havePanels || len(dst) == 0 || len(weights) == 0 {
		tapSumsGo(dst, src, offsets, weights, start)
		return
	}
	_, _ = src[slices.Max(offsets)+len(dst)-1], weights[:len(offsets)]
	tapSumsY(len(offsets), len(dst), &dst[0], &src[0], &offsets[0], &weights[0], start)
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

// deinterleave is deinterleaveGo.
func deinterleave(even, odd, src []float32) {
	n := 0
	if m := min(len(even), len(odd)); havePanels && m >= 8 {
		n = m &^ 7
		_ = src[2*n-1]
		deinterleaveY(n, &even[0], &odd[0], &src[0])
	}
	deinterleaveGo(even[n:], odd[n:], src[2*n:])
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

// tilesOut is tilesOutGo; of every line dst gets up to fourteen elements more, and as many of m are read as it gets.
func tilesOut(dst []float32, line int, m []float32, ms, n int, start float32) {
	if !havePanels {
		tilesOutGo(dst, line, m, ms, n, start)
		return
	}
	more := (n + 7) &^ 7
	_, _ = dst[line+2*more-1], m[15*ms+more-1]
	tilesOutY(n, &dst[0], line, &m[0], ms, start)
}

// In the following n is a multiple of 8 and at least that, or of tapRun, and there is at least one tap. That of the tiles is any number above 0.

//go:noescape
func limitY(n int, dst, src *float32, scale, shift, lo, hi float32)

//go:noescape
func tapSumsY(taps, n int, dst, src *float32, offsets *int, weights *float32, start float32)

//go:noescape
func tapMaximaY(taps, n int, dst, src *float32, offsets *int)

//go:noescape
func deinterleaveY(n int, even, odd, src *float32)

//go:noescape
func tilesInY(n int, dst *float32, ds int, src *float32, line, odd int)

//go:noescape
func tilesOutY(n int, dst *float32, line int, m *float32, ms int, start float32)
