//go:build !amd64

package dense

func row(d int, a, b, c []float64) { rowGo(d, a, b, c) }

func softmax(c, n int, l []float64, ls int, e []float64, es int, p []float64, ps int, add bool, top,
	sum []float64) {
	softmaxGo(c, n, l, ls, e, es, p, ps, add, top, sum)
}

func blend(c, n int, l []float64, ls int, p []float64, ps int, s []float64, ss int,
	inner []float64) {
	blendGo(c, n, l, ls, p, ps, s, ss, inner)
}

func expSum(c, n int, l []float32, ls int, by float64, sum []float64) {
	expSumGo(c, n, l, ls, by, sum)
}

func curve(c, n int, a []float64, as int, p []float64, ps int, w []float64) {
	curveGo(c, n, a, as, p, ps, w)
}

func rowSingle(d int, a, b, c []float32) { rowSingleGo(d, a, b, c) }

// widen does no columns here, and neither do half4, dots4 and adds4: their callers do all in Go.
func widen(int, int, []float32, int, []float64, []float64, float64) int { return 0 }

func narrow(n int, from []float64, to []float32, step int) { narrowGo(n, from, to, step) }

func curveSingle(c, n int, a []float32, as int, p []float32, ps int, w []float32) {
	curveGo(c, n, a, as, p, ps, w)
}

func half4(int, []float64, int, []float64, []float64, *[4]float64, *[4]float64) int { return 0 }

func dots4[T float32 | float64](int, []T, int, []T, []T) int { return 0 }

func adds4[T float32 | float64](int, []T, int, []T, []T) int { return 0 }

func residual(c, n int, a []float32, as int, y []float32, ys int, w []float32) {
	residualGo(c, n, a, as, y, ys, w)
}
