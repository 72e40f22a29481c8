//go:build !amd64

package kernel

// haveDots and haveWords are false: products of bytes go by the loops in Go.
const haveDots, haveWords = false, false

// dotBytes and depthBytes are 1, as the loops in Go read weights as signed bytes.
func dotBytes() int { return 1 }

func depthBytes() int { return 1 }

// dots is handed one panel of filters and of columns at a time where haveDots is false.
func dots(d *dotSums, a []int8, b []uint8, offsets []int, channel, filters, cols int,
	c []uint8, stride int) {
	dotsGo(d, a, b, offsets, channel, filters, cols, c, stride)
}

// strips is false and writes nothing, so that [integerRun.depthwise] does the work.
func (*integerRun) strips(window) bool { return false }

// dotRows is called where haveDots holds alone, and so never here.
func dotRows(*integerRun, []uint8, int, int, int) {}

// interleave does no element: interleaveGo goes on from the number that it returns.
func interleave([]uint8, *[4][]uint8, uint8) int { return 0 }

// The functions below hand on to the loops in Go, which stand beside their types.
func copyLines(dst, src []uint8, lines, n, to, from int) {
	copyLinesGo(dst, src, lines, n, to, from)
}

func (g *gathering) gather(dst, src []uint8) { g.gatherGo(dst, src) }

func (h *byTurns) copy(even, odd, src []uint8) { h.copyGo(even, odd, src) }

func quantizeRow(dst []uint8, src []float32, scale float32, s saturation) {
	quantizeGo(dst, src, scale, s)
}

func dequantizeRow(dst []float32, src []uint8, q quantum) { dequantizeGo(dst, src, q) }

func depthPlane(d *depthTaps, dst, src []uint8, weights []int8, start int32,
	scale float32, s saturation) {
	depthPlaneGo(d, dst, src, weights, start, scale, s)
}

func paired(dst, a, b []uint8, p *pairing) { pairedGo(dst, a, b, p) }

func lookUp(dst, src []uint8, table *[256]uint8) { lookUpGo(dst, src, table) }

func tapMaximaBytes(dst, src []uint8, offsets []int, flip uint8) {
	tapMaximaBytesGo(dst, src, offsets, flip)
}

// splitBytes does no element, and its caller's loop does all.
func splitBytes(int, []uint8, []uint8, []uint8) int { return 0 }
