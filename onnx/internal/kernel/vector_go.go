//go:build !amd64 && !wasm

package kernel

func limit(dst, src []float32, scale, shift, lo, hi float32) {
	limitGo(dst, src, scale, shift, lo, hi)
}

func tapSums(dst, src []float32, offsets []int, weights []float32, start float32, _ bool) {
	tapSumsGo(dst, src, offsets, weights, start)
}

func deinterleave(_, _ int, _, _ []float32, _ int, _ []float32, _ int) int { return 0 }

func pairs(operation, []float32, []float32, []float32) int { return 0 }

func finishRows(*after, matrix[float32], int) bool { return false }
