package kernel

import "math"

// Loops over float32 that models spend their time in, besides products: in AVX2 on amd64, as Go
// here elsewhere. On amd64 an element does not depend on where in a run it lies.

// tapRun is how many elements the loops over taps do at a time: the lengths that they are given are
// multiples of it.
const tapRun = 32

// operation is the operation of pairs. Kernels in assembly know its numbers.
type operation int

const (
	sums operation = iota
	differences
	products
	quotients
)

// vectors is row with most of it done by pairs. It is no part of its callers' code.
//
//go:noinline
func vectors(op operation, row func(dst, a, b []float32)) func(dst, a, b []float32) {
	rest := func(v []float32, n int) []float32 {
		if len(v) > 1 {
			v = v[n:]
		}
		return v
	}
	return func(dst, a, b []float32) {
		if n := pairs(op, dst, a, b); n < len(dst) {
			row(dst[n:], rest(a, n), rest(b, n))
		}
	}
}

// negativeZero is the number whose addition changes no number.
var negativeZero = float32(math.Copysign(0, -1))

// limitGo sets dst to min(max(scale src + shift, lo), hi), in two roundings; NaN stays NaN.
func limitGo(dst, src []float32, scale, shift, lo, hi float32) {
	dst = dst[:len(src)]
	for i, v := range src {
		if v = float32(scale*v) + shift; v < lo {
			v = lo
		}
		if v > hi {
			v = hi
		}
		dst[i] = v
	}
}

// tapSumsGo sets dst[i] to start plus the sum of weights[t] src[offsets[t] + i] over the taps t,
// every product rounded.
func tapSumsGo[T floating](dst, src []T, offsets []int, weights []T, start T) {
	fillRange(dst, start)
	t := 0
	for ; t+3 <= len(weights); t += 3 {
		x, y, z := src[offsets[t]:][:len(dst)], src[offsets[t+1]:][:len(dst)],
			src[offsets[t+2]:][:len(dst)]
		a, b, c := weights[t], weights[t+1], weights[t+2]
		for i := range dst {
			dst[i] = dst[i] + T(a*x[i]) + T(b*y[i]) + T(c*z[i])
		}
	}
	for ; t < len(weights); t++ {
		w := weights[t]
		for i, v := range src[offsets[t]:][:len(dst)] {
			dst[i] += T(w * v)
		}
	}
}

// tapMaximaGo sets dst[i] to the largest src[offsets[t] + i], NaN where one of them is.
func tapMaximaGo(dst, src []float32, offsets []int) {
	copy(dst, src[offsets[0]:])
	for _, off := range offsets[1:] {
		for i, v := range src[off:][:len(dst)] {
			dst[i] = max(dst[i], v)
		}
	}
}

// deinterleaveGo sets even to src[0], src[2], ... and odd to src[1], src[3], ..., as long as they
// are.
func deinterleaveGo[T any](even, odd, src []T) {
	for i := range even {
		even[i] = src[2*i]
	}
	for i := range odd {
		odd[i] = src[2*i+1]
	}
}
