package kernel

// deviations returns the sum of the squares of v less mean, in float64 and in lanes, or false. The
// numbers after the last whole vector are added at the end, in their order.
func deviations(v []float32, mean float64) (float64, bool) {
	n := len(v) &^ 15
	if !havePanels || n == 0 {
		return 0, false
	}
	sum := deviationsY(n, &v[0], mean)
	for _, x := range v[n:] {
		d := float64(x) - mean
		sum += d * d
	}
	return sum, true
}

// normalise is normaliseGo for the first elements, and returns how many. bias may be nil; dst may
// be src.
func normalise(dst, src, scale, bias []float32, mean, factor float64) int {
	n := len(src) &^ 7
	if !havePanels || n == 0 {
		return 0
	}
	_, _ = dst[n-1], scale[n-1]
	var from *float32
	if bias != nil {
		_ = bias[n-1]
		from = &bias[0]
	}
	normaliseY(n, &dst[0], &src[0], &scale[0], from, mean, factor)
	return n
}

// normLines is the arguments of normLinesZ: lines of n numbers, which are normalised with moments
// of their own.
type normLines struct {
	dst, src, scale, bias *float32 // bias may be nil
	rows, n               int
	inverse, eps, one     float64 // 1 / n, and 1
}

// normalisedLines sets dst to lines of src, as long as scale is, less their means, over the roots
// of their variances plus eps, as normaliseLine has the rest, or returns false.
func normalisedLines(dst, src, scale, bias []float32, eps float64) bool {
	n := len(scale)
	if !haveAVX512 || n == 0 || len(src) < n {
		return false
	}
	_ = dst[len(src)-1]
	l := normLines{dst: &dst[0], src: &src[0], scale: &scale[0], rows: len(src) / n, n: n,
		inverse: 1 / float64(n), eps: eps, one: 1}
	if bias != nil {
		l.bias = &bias[:n][0]
	}
	normLinesZ(&l)
	return true
}

// turn writes n columns of eight rows of src, which lie ss apart, to rows of dst, which lie ds
// apart, or some of them, and returns how many. It is a transposition: dst[i ds + r] = src[r ss +
// i] for r < 8.
func turn(n int, dst []float32, ds int, src []float32, ss int) int {
	n &^= 7
	if !havePanels || n == 0 {
		return 0
	}
	_, _ = dst[(n-1)*ds+7], src[7*ss+n-1]
	turnY(n, &dst[0], ds, &src[0], ss)
	return n
}

//go:noescape
func normLinesZ(l *normLines)

//go:noescape
func deviationsY(n int, src *float32, mean float64) float64

//go:noescape
func normaliseY(n int, dst, src, scale, bias *float32, mean, factor float64)

//go:noescape
func turnY(n int, dst *float32, ds int, src *float32, ss int)
