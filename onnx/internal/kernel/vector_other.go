//go:build !amd64

package kernel

// winogradLeast is how many channels a convolution has at least to be done in tiles, whose way there and back is in Go.
const winogradLeast = 48

func limit(dst, src []float32, scale, shift, lo, hi float32) {
	limitGo(dst, src, scale, shift, lo, hi)
}

func tapSums(dst, src []float32, offsets []int, weights []float32, start float32, _ bool) {
	tapSumsGo(dst, src, offsets, weights, start)
}

func tapMaxima(dst, src []float32, offsets []int) { tapMaximaGo(dst, src, offsets) }

func deinterleave(_, _ int, _, _ []float32, _ int, _ []float32, _ int) int { return 0 }

func tilesIn(dst []float32, ds int, src []float32, line, odd, n int) {
	tilesInGo(dst, ds, src, line, odd, n)
}

func tilesOut(dst []float32, line int, m []float32, ms, n int, f *finish) {
	tilesOutGo(dst, line, m, ms, n, f)
}

func pairs(operation, []float32, []float32, []float32) int { return 0 }

func vectorMath() bool { return false }

func softmaxRow(_, _ []float32) {}

func erfRow(_, _ []float32) {}

func expRow(_, _ []float32) {}

func tanhRow(_, _ []float32) {}

func curveRow(curve, []float32, []float32) bool { return false }

func finishRows(*after, matrix[float32], int) bool { return false }

func laneSums([]float32) (float64, bool) { return 0, false }

func scaleRows([]float32, []float32, []float32) bool { return false }
