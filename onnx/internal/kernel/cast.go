package kernel

import (
	"fmt"
	"math"
	"reflect"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Cast and CastLike convert elements, out's shape = x's. A float going to an integer is truncated
// towards zero; numbers outside the integer's range, and NaN, have no defined result and give the
// nearest bound and 0. Not to or from strings.
func init() {
	register(
		Def{Op: "Cast", Since: 6, OutType: castType, New: newCast},
		Def{Op: "CastLike", Since: 15, New: newCast},
	)
}

// castType is the attribute to, which has no default.
func castType(s *Spec) (onnx.DType, error) {
	if !s.hasAttr("to") {
		return 0, fmt.Errorf("attribute to is missing")
	}
	return s.dtype("to"), nil
}

// newCast: a cast to the input's own type shares its buffer. saturate is read from operator set 19
// on, round_mode from 24 on.
func newCast(s *Spec) (Kernel, error) {
	s.ignore("to")
	to := s.Out[0]
	saturate, rounding := true, "up"
	if s.Opset >= 19 {
		saturate = s.bool("saturate")
	}
	if s.Opset >= 24 && s.Node.Op != "BitCast" {
		rounding = s.str("round_mode")
	}
	if to == onnx.String || s.In[0] == onnx.String {
		return nil, fmt.Errorf("casting to and from strings is not supported")
	}
	if to == onnx.BFloat16 && s.In[0] != to && s.Opset < 19 {
		// The standard's own tests truncate up to its release 1.12 and round later; the text
		// settles it in opset 19.
		return nil, fmt.Errorf("rounding to bfloat16 is not defined before opset 19")
	}
	return func(c *Call) error {
		if c.In[0].DType == to {
			return c.view(0, 0, c.In[0].Shape)
		}
		out := try.Get(c.New(0, to, c.In[0].Shape))
		if to.IsNarrowFloat() {
			x := c.In[0]
			if x.DType != onnx.Float32 {
				x = &onnx.Tensor{DType: onnx.Float32, Shape: x.Shape, Data: scratch[float32](c, x.Len())}
				castInto(x, c.In[0])
			}
			code := onnx.Float32ToNarrow(to, saturate)
			if to == onnx.Float8E8M0 {
				code = powerCode(saturate, rounding)
			}
			d := data[uint8](out)
			for i, v := range x.F32() {
				d[i] = code(v)
			}
			return nil
		}
		castInto(out, c.In[0])
		return nil
	}, nil
}

// powerCode returns a function to the code of a power of two in Float8E8M0: of the nearest one (the
// larger of two), of the next above or of the next below. The code is the exponent plus 127; 0xff
// is NaN, which negative numbers become, as the format has no sign. 0 and powers below 2^-127
// become code 0.
func powerCode(saturate bool, rounding string) func(v float32) uint8 {
	return func(v float32) uint8 {
		switch {
		case v != v || v < 0:
			return 0xff
		case v == 0:
			return 0
		case math.IsInf(float64(v), 1) && !saturate:
			return 0xff
		case math.IsInf(float64(v), 1):
			return 0xfe
		}
		frac, e := math.Frexp(float64(v)) // v = frac 2^e, frac in [1/2, 1)
		// v is (2 frac) 2^(e-1), with 2 frac in [1, 2).
		code := e - 1 + 127
		if rounding == "up" && frac > .5 || rounding == "nearest" && frac >= .75 {
			code++
		}
		if code > 0xfe && !saturate {
			return 0xff
		}
		return uint8(min(max(code, 0), 0xfe))
	}
}

// castBlock is how many elements are converted at a time. A copy of a block in a wider type takes
// 16 KiB, which are not the pool's.
const castBlock = 1 << 11

// castInto converts all elements of in to out's type, block by block: a copy of the whole input in
// a wider type would be memory beyond the pool's limit. Both have the same number of elements.
func castInto(out, in *onnx.Tensor) {
	n := in.Len()
	if n <= castBlock {
		castPart(out, in)
		return
	}
	for lo := 0; lo < n; lo += castBlock {
		hi := min(lo+castBlock, n)
		castPart(span(out, lo, hi), span(in, lo, hi))
	}
}

// span is a tensor of the elements lo <= i < hi of t, in t's memory.
func span(t *onnx.Tensor, lo, hi int) *onnx.Tensor {
	return &onnx.Tensor{DType: t.DType, Shape: []int{hi - lo},
		Data: reflect.ValueOf(t.Data).Slice(lo, hi).Interface()}
}

// castEach writes v(i) to element i of out, in its type: whole numbers and floats as castInto has
// them.
func castEach(out *onnx.Tensor, v func(i int) float64) {
	n := out.Len()
	buf := make([]float64, min(n, castBlock))
	for lo := 0; lo < n; lo += castBlock {
		w := buf[:min(castBlock, n-lo)]
		for i := range w {
			w[i] = v(lo + i)
		}
		castPart(span(out, lo, lo+len(w)), onnx.NewTensor(w, len(w)))
	}
}

// castPart converts a block. Narrow integers and booleans are widened to int64 first, and half
// floats to float32, so that there are few pairs of types to write code for.
func castPart(out, in *onnx.Tensor) {
	if in.DType.IsNarrowFloat() {
		f, values := make([]float32, in.Len()), onnx.NarrowToFloat32(in.DType)
		for i, v := range in.U8() {
			f[i] = values[v]
		}
		castFrom(out, f)
		return
	}
	switch s := in.Data.(type) {
	case []float32:
		castFrom(out, s)
	case []float64:
		castFrom(out, s)
	case []int64:
		castFrom(out, s)
	case []uint64:
		castFrom(out, s)
	case []int8:
		castFrom(out, wide(s))
	case []int16:
		castFrom(out, wide(s))
	case []int32:
		castFrom(out, wide(s))
	case []uint8:
		if d, ok := out.Data.([]float32); ok && out.DType == onnx.Float32 { // images
			for i, v := range s {
				d[i] = float32(v)
			}
			return
		}
		castFrom(out, wide(s))
	case []uint32:
		castFrom(out, wide(s))
	case []uint16:
		if halves.Has(in.DType) {
			f := make([]float32, len(s))
			widen(f, s, in.DType)
			castFrom(out, f)
			return
		}
		castFrom(out, wide(s))
	case []bool:
		f := make([]int64, len(s))
		for i, v := range s {
			if v {
				f[i] = 1
			}
		}
		castFrom(out, f)
	}
}

// wide gives narrow integers 64 bits, which changes none of them.
func wide[T integer](s []T) []int64 {
	f := make([]int64, len(s))
	for i, v := range s {
		f[i] = int64(v)
	}
	return f
}

// castFrom converts numbers to out's type. Integers wrap around, floats are truncated and held to
// the bounds of an integer type. Half-precision floats are rounded through float32, so that a
// float64 is rounded twice.
func castFrom[A number](out *onnx.Tensor, in []A) {
	if out.DType.IsNarrow() {
		toNarrow(out, in)
		return
	}
	switch d := out.Data.(type) {
	case []float32:
		for i, v := range in {
			d[i] = float32(v)
		}
	case []float64:
		for i, v := range in {
			d[i] = float64(v)
		}
	case []int8:
		toInt(d, math.MinInt8, math.MaxInt8, toWords(in))
	case []int16:
		toInt(d, math.MinInt16, math.MaxInt16, toWords(in))
	case []int32:
		toInt(d, math.MinInt32, math.MaxInt32, toWords(in))
	case []int64:
		toInt(d, math.MinInt64, math.MaxInt64, toWords(in))
	case []uint8:
		toInt(d, 0, math.MaxUint8, toWords(in))
	case []uint16:
		if halves.Has(out.DType) {
			f := make([]float32, len(in))
			for i, v := range in {
				f[i] = float32(v)
			}
			narrow(d, f, out.DType)
			return
		}
		toInt(d, 0, math.MaxUint16, toWords(in))
	case []uint32:
		toInt(d, 0, math.MaxUint32, toWords(in))
	case []uint64:
		toInt(d, 0, math.MaxUint64, toWords(in))
	case []bool:
		for i, v := range in {
			d[i] = v != 0
		}
	}
}

// toNarrow rounds to floats of 8 bits and less, and cuts integers to their low bits.
func toNarrow[A number](out *onnx.Tensor, in []A) {
	d, isUnsigned := out.Data.([]uint8)
	if out.DType.IsNarrowFloat() {
		code := onnx.Float32ToNarrow(out.DType, true)
		for i, v := range in {
			d[i] = code(float32(v))
		}
		return
	}
	bits := out.DType.Bits()
	whole := make([]int64, len(in))
	toInt(whole, math.MinInt64, math.MaxInt64, toWords(in))
	for i, v := range whole {
		if isUnsigned {
			d[i] = uint8(v) & (1<<bits - 1)
		} else {
			out.Data.([]int8)[i] = int8(v<<(8-bits)) >> (8 - bits)
		}
	}
}

// toInt truncates floats to integers, with bounds; integers wrap, as two's complement does. words
// gives the numbers from one on. A block of 256 numbers in 64 bits stands between the two types: 2
// KiB.
//
//go:noinline
func toInt[B integer](dst []B, lo int64, hi uint64,
	words func(w []uint64, at int, lo int64, hi uint64)) {
	var w [256]uint64
	for at := 0; at < len(dst); at += len(w) {
		part := dst[at:min(at+len(w), len(dst))]
		words(w[:len(part)], at, lo, hi)
		for i := range part {
			part[i] = B(w[i])
		}
	}
}

// toWords returns a function to the two's complement of numbers in 64 bits. Apart from toInt it is
// compiled once for each type of numbers, not for each pair of types.
//
//go:noinline
func toWords[A number](in []A) func(words []uint64, at int, lo int64, hi uint64) {
	switch any(in).(type) {
	case []float32, []float64:
		return func(words []uint64, at int, lo int64, hi uint64) {
			b := newWholes(lo, hi)
			for i := range words {
				words[i] = b.word(float64(in[at+i]))
			}
		}
	}
	return func(words []uint64, at int, _ int64, _ uint64) {
		for i := range words {
			words[i] = uint64(in[at+i])
		}
	}
}

// beyond is 2^63, the first number that int64 does not hold.
const beyond = 1 << 63

// wholes are the bounds of a type of whole numbers.
type wholes struct {
	lo, hi float64 // hi is the largest float64 of the type
	rest   uint64  // the largest number of the type less hi
}

// float64(hi) rounds up to 2^63 or 2^64 for the widest types, which the type does not hold.
func newWholes(lo int64, hi uint64) wholes {
	b := wholes{lo: float64(lo), hi: float64(hi)}
	for b.hi >= 2*beyond || hi < beyond && b.hi >= beyond {
		b.hi = math.Nextafter(b.hi, 0)
	}
	b.rest = hi - uint64(b.hi)
	return b
}

// word truncates a number to the type, in the same steps whatever number it is: time must tell
// nothing of pixels.
func (b wholes) word(f float64) uint64 {
	g := min(max(f, b.lo), b.hi)
	large := mask(g >= beyond)
	w := uint64(int64(g))&^large | (uint64(int64(g-beyond))+beyond)&large
	return (w + b.rest&mask(f > b.hi)) & mask(f == f)
}

// mask has all bits set where c holds; the compiler makes no branch of it.
func mask(c bool) uint64 {
	var b uint64
	if c {
		b = 1
	}
	return -b
}
