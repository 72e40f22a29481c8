//go:build !amd64 && !wasm

package kernel

func limit(dst, src []float32, scale, shift, lo, hi float32) {
	limitGo(dst, src, scale, shift, lo, hi)
}

func tapSums(dst, src []float32, offsets []int, weights []float32, start float32, _ bool) {
	tapSumsGo(dst, src, offsets, weights, start)
}

// deinterleave does no element, and deinterleaveGo does all.
func deinterleave(_, _ int, _, _ []float32, _ int, _ []float32, _ int) int { return 0 }

func pairs(operation, []float32, []float32, []float32) int { return 0 }

// finishRows is false and writes nothing, so that its caller goes on in Go.
func finishRows(*after, matrix[float32], int) bool { return false }
