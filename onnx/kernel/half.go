package kernel

import (
	"math"

	"fmp/onnx"
)

// HalfToFloat32 widens an IEEE 754 binary16 number; exact.
func HalfToFloat32(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h>>10) & 31
	frac := uint32(h) & 0x3ff
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	v := float32(frac) * (1.0 / (1 << 24))
	return math.Float32frombits(math.Float32bits(v) | sign)
}

// Float32ToHalf rounds to the nearest binary16 number, ties to even; too large becomes infinite.
func Float32ToHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00
	case abs >= 0x477ff000: // from 65520 on the nearest is infinity
		return sign | 0x7c00
	case abs < 0x38800000: // subnormal: in units of 2^-24
		v := math.RoundToEven(float64(math.Float32frombits(abs)) * (1 << 24))
		return sign | uint16(v)
	}
	r := abs + 0xfff + (abs>>13)&1
	return sign | uint16((r-(112<<23))>>13)
}

// bfloat16 is the upper half of a float32.
func bfloatToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// float32ToBfloat rounds to nearest, ties to even.
func float32ToBfloat(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

func widen(dst []float32, src []uint16, d onnx.DType) {
	if d == onnx.BFloat16 {
		for i, v := range src {
			dst[i] = bfloatToFloat32(v)
		}
		return
	}
	for i, v := range src {
		dst[i] = HalfToFloat32(v)
	}
}

func narrow(dst []uint16, src []float32, d onnx.DType) {
	if d == onnx.BFloat16 {
		for i, v := range src {
			dst[i] = float32ToBfloat(v)
		}
		return
	}
	for i, v := range src {
		dst[i] = Float32ToHalf(v)
	}
}
