//go:build !amd64

package kernel

// winogradLeast is how many channels a convolution has at least to be done in tiles, whose way
// there and back is in Go.
const winogradLeast = 48

// tapMaxima, tilesIn and tilesOut are the loops in Go. Those write no element beyond a line's end,
// as vectors do.
func tapMaxima(dst, src []float32, offsets []int) { tapMaximaGo(dst, src, offsets) }

func tilesIn(dst []float32, ds int, src []float32, line, odd, n int) {
	tilesInGo(dst, ds, src, line, odd, n)
}

func tilesOut(dst []float32, line int, m []float32, ms, n int, f *finish) {
	tilesOutGo(dst, line, m, ms, n, f)
}

// vectorMath is false: the rows of curves below are never called.
func vectorMath() bool { return false }

func softmaxRows(_, _ []float32, _ int) {}

func geluRow(_, _ []float32) {}

// endRows is false and writes nothing, so that its caller goes on in Go.
func endRows(*lines, matrix[float32], int) bool { return false }

func erfRow(_, _ []float32) {}

func expRow(_, _ []float32) {}

func tanhRow(_, _ []float32) {}

func curveRow(curve, []float32, []float32) {}

// laneSums and scaleRows are false, and their callers go on in Go.
func laneSums([]float32) (float64, bool) { return 0, false }

func scaleRows([]float32, []float32, []float32) bool { return false }

type tileLanes struct{}

// layTiles is nil, so that the methods of tileLanes are never called.
func layTiles(winogradItem, *tileLanes) *tileLanes { return nil }

func (*tileLanes) in([]float32, int, []float32, int) {}

func (*tileLanes) out(_, _ []float32, _ int, _ *finish) {}
