package onnx

import (
	"fmt"
	"math"
	"sort"
	"sync"
)

// Element types of 8 bits and less. A tensor in memory holds one element a byte: the numbers
// themselves of Int4 and Int2 in a []int8, those of Uint4 and Uint2 and the codes of floats in a
// []uint8. Files pack those of 4 and 2 bits, the first element in the low bits.
const (
	Float8E4M3FN   DType = 17
	Float8E4M3FNUZ DType = 18
	Float8E5M2     DType = 19
	Float8E5M2FNUZ DType = 20
	Uint4          DType = 21
	Int4           DType = 22
	Float4E2M1     DType = 23
	Float8E8M0     DType = 24
	Uint2          DType = 25
	Int2           DType = 26
)

// Bits returns the number of bits of one element in a file; 0 for String and unknown types.
func (d DType) Bits() int {
	switch d {
	case Uint4, Int4, Float4E2M1:
		return 4
	case Uint2, Int2:
		return 2
	}
	return 8 * d.Size()
}

// RawBytes returns the number of bytes that n elements take in a file.
func (d DType) RawBytes(n int) int64 { return (int64(n)*int64(d.Bits()) + 7) / 8 }

// IsNarrowFloat reports whether d is a float of 8 or 4 bits.
func (d DType) IsNarrowFloat() bool { return narrowFloats[d] != nil }

// IsNarrow reports whether d is one of the element types of 8 bits and less that few operators
// take.
func (d DType) IsNarrow() bool { return d >= Float8E4M3FN && d <= Int2 }

// narrowFloat is a binary floating-point format without or with infinities, and with or without a
// negative zero.
type narrowFloat struct {
	mantissa, bias int
	// finite values of one sign: the codes 0 to codes - 1 in ascending order
	codes        int
	sign         uint8 // bit; 0 where there is none
	nan, inf     uint8 // codes of the positive ones; 0 where there is none
	positiveZero bool  // the code of -0 is NaN
	values       func() []float32
}

// Sources: Micikevicius et al., FP8 formats for deep learning (arXiv 2209.05433); Noune et al.
// (arXiv 2206.02915) for UZ; OCP Microscaling Formats 1.0 for E2M1 and E8M0.
var narrowFloats = map[DType]*narrowFloat{
	Float8E4M3FN:   {mantissa: 3, bias: 7, codes: 0x7f, sign: 0x80, nan: 0x7f},
	Float8E4M3FNUZ: {mantissa: 3, bias: 8, codes: 0x80, sign: 0x80, nan: 0x80, positiveZero: true},
	Float8E5M2:     {mantissa: 2, bias: 15, codes: 0x7c, sign: 0x80, nan: 0x7f, inf: 0x7c},
	Float8E5M2FNUZ: {mantissa: 2, bias: 16, codes: 0x80, sign: 0x80, nan: 0x80, positiveZero: true},
	Float4E2M1:     {mantissa: 1, bias: 1, codes: 8, sign: 8},
	Float8E8M0:     {bias: 127, codes: 0xff, nan: 0xff},
}

func init() {
	for d, f := range narrowFloats {
		// A table is made when it is first asked for, once for all goroutines.
		f.values = sync.OnceValue(func() []float32 {
			out := make([]float32, 256)
			for c := range out {
				out[c] = f.value(uint8(c), d)
			}
			return out
		})
	}
}

// value decodes a code: ± 2^(e - bias) (1 + m / 2^mantissa) with m the mantissa's bits and e the
// exponent's. Where e is 0 it is ± 2^(1 - bias) m / 2^mantissa, without the leading 1.
func (f *narrowFloat) value(code uint8, d DType) float32 {
	mag, sign := int(code), 1.0
	if f.sign != 0 && code&f.sign != 0 {
		mag, sign = int(code&(f.sign-1)), -1
	}
	switch {
	case f.positiveZero && code == f.sign || mag >= f.codes && uint8(mag) != f.inf:
		return float32(math.NaN())
	case f.inf != 0 && uint8(mag) == f.inf:
		return float32(math.Inf(int(sign)))
	case d == Float8E8M0:
		return float32(math.Ldexp(1, mag-f.bias))
	}
	e, m := mag>>f.mantissa, mag&(1<<f.mantissa-1)
	if e == 0 {
		e = 1
	} else {
		m |= 1 << f.mantissa
	}
	return float32(sign * math.Ldexp(float64(m), e-f.bias-f.mantissa))
}

// NarrowToFloat32 returns the values of the codes of a float of 8 or 4 bits, by code. The list is
// shared, and callers read it only.
func NarrowToFloat32(d DType) []float32 { return narrowFloats[d].values() }

// Float32ToNarrow returns a function to the code of a float of 8 or 4 bits: the nearest, the even
// one of two that are equally near. With saturate a value beyond the largest finite one becomes
// that; without, an infinity or NaN. Types without NaN have 0 in its place.
func Float32ToNarrow(d DType, saturate bool) func(v float32) uint8 {
	f := narrowFloats[d]
	values := f.values()[:f.codes]
	last := float64(values[f.codes-1])
	// As if the exponents went on: a number that rounds to the next value is beyond.
	limit := last + (last-float64(values[f.codes-2]))/2
	if f.codes%2 == 0 { // the next one is even, and has what lies halfway
		limit = math.Nextafter(limit, 0)
	}
	over := func(sign uint8) uint8 {
		switch {
		case f.inf != 0:
			return f.inf | sign
		case f.positiveZero:
			return f.nan
		}
		return f.nan | sign
	}
	return func(v float32) uint8 {
		sign := uint8(0)
		if math.Signbit(float64(v)) {
			sign = f.sign
		}
		mag := math.Abs(float64(v))
		switch {
		case v != v:
			return f.nan | sign&^f.nan
		case mag > last && (saturate || f.nan == 0):
			return uint8(f.codes-1) | sign
		case mag > limit:
			return over(sign)
		}
		// The code found is of the least value not below mag. The one before it may be nearer.
		code := sort.Search(len(values), func(i int) bool { return float64(values[i]) >= mag })
		if code == len(values) {
			code-- // between the last and the limit
		} else if code > 0 {
			if below, above := mag-float64(values[code-1]), float64(values[code])-mag; below < above || below == above && code&1 == 1 {
				code--
			}
		}
		if code == 0 && f.positiveZero {
			return 0
		}
		return uint8(code) | sign
	}
}

// PackedData returns the elements of a tensor of a narrow type as a file has them. With b bits an
// element, number i begins at bit i b of the file, counted in each byte from the lowest.
func PackedData(t *Tensor) []byte {
	bits := t.DType.Bits()
	out := make([]byte, t.DType.RawBytes(t.Len()))
	put := func(i int, v uint8) { out[i*bits/8] |= v & (1<<bits - 1) << (i * bits % 8) }
	switch d := t.Data.(type) {
	case []uint8:
		for i, v := range d {
			put(i, v)
		}
	case []int8:
		for i, v := range d {
			put(i, uint8(v))
		}
	}
	return out
}

// UnpackData fills the elements of a tensor of a narrow type from as many bytes as a file has of
// them.
func UnpackData(t *Tensor, raw []byte) error {
	bits := t.DType.Bits()
	if int64(len(raw)) != t.DType.RawBytes(t.Len()) {
		return fmt.Errorf("%d bytes for %d elements of %v", len(raw), t.Len(), t.DType)
	}
	at := func(i int) uint8 { return raw[i*bits/8] >> (i * bits % 8) & uint8(1<<bits-1) }
	switch d := t.Data.(type) {
	case []uint8:
		for i := range d {
			d[i] = at(i)
		}
	case []int8:
		for i := range d {
			d[i] = int8(at(i)<<(8-bits)) >> (8 - bits)
		}
	}
	return nil
}
