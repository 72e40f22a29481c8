package kernel

import (
	"math"

	"fmp/onnx"
)

// float32ToBfloat rounds to nearest, ties to even.
func float32ToBfloat(f float32) uint16 {
	b := math.Float32bits(f)
	// A NaN becomes a quiet one, as rounding could carry its bits over to infinity or to a zero.
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	// Half a unit less one, and the lowest bit that stays, round the cut bits half to even. A carry
	// goes into the exponent: the next power of two, or infinity above the largest.
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// widen converts halves of type d, which is exact. dst has at least as many elements as src.
func widen(dst []float32, src []uint16, d onnx.DType) {
	for i, v := range src {
		dst[i] = onnx.HalfToFloat32(d, v)
	}
}

// narrow rounds to halves of type d, ties to even.
func narrow(dst []uint16, src []float32, d onnx.DType) {
	to := onnx.Float32ToFloat16
	if d == onnx.BFloat16 {
		to = float32ToBfloat
	}
	for i, v := range src {
		dst[i] = to(v)
	}
}
