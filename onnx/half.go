package onnx

import (
	"math"
)

// HalfToFloat32 returns the value of a Float16 (IEEE 754 binary16) or BFloat16 element, exactly;
// for other types it is not a number.
func HalfToFloat32(d DType, bits uint16) float32 {
	switch d {
	case BFloat16:
		return math.Float32frombits(uint32(bits) << 16)
	case Float16:
		sign, exp, frac := uint32(bits>>15)<<31, uint32(bits>>10)&0x1f, uint32(bits)&0x3ff
		switch exp {
		case 0: // zero and subnormals: frac times 2^-24
			v := float32(frac) / (1 << 24)
			return math.Float32frombits(math.Float32bits(v) | sign)
		case 0x1f: // infinity and NaN
			return math.Float32frombits(sign | 0x7f800000 | frac<<13)
		}
		return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
	}
	return float32(math.NaN())
}

// Float32ToFloat16 returns the Float16 (IEEE 754 binary16) nearest to v, the even one of two that
// are equally near; a value beyond 65504 after rounding becomes infinity.
func Float32ToFloat16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign, mag := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case mag > 0x7f800000:
		return sign | 0x7e00 // not a number
	case mag >= 0x477ff000:
		return sign | 0x7c00
	case mag < 0x38800000: // below 2^-14: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(mag))*(1<<24)))
	}
	mag -= (127 - 15) << 23
	mag += 0xfff + mag>>13&1
	return sign | uint16(mag>>13)
}
