package onnx

import (
	"math"
	"testing"

	"fmp/onnx/must"
)

// Every code of a narrow float is the nearest one to its value; known values are those of the
// formats' papers.
func TestNarrowFloats(t *testing.T) {
	inf := float32(math.Inf(1))
	for d, f := range narrowFloats {
		values, code := NarrowToFloat32(d), Float32ToNarrow(d, false)
		for c := range 256 {
			if c >= 1<<d.Bits() {
				break
			}
			v := values[c]
			if got := code(v); v == v && got != uint8(c) || v != v && f.nan == 0 {
				t.Errorf("%v: code %#x of %v came back as %#x", d, c, v, got)
			}
		}
	}
	for _, c := range []struct {
		d        DType
		v        float32
		saturate bool
		want     uint8
	}{
		{Float8E4M3FN, 448, true, 0x7e}, {Float8E4M3FN, 1e9, true, 0x7e},
		{Float8E4M3FN, 1e9, false, 0x7f}, {Float8E4M3FN, -inf, false, 0xff},
		// half way to what would be 480
		{Float8E4M3FN, 464, false, 0x7e}, {Float8E4M3FN, 465, false, 0x7f},
		{Float8E4M3FN, 1.0625, true, 0x38}, {Float8E4M3FN, 1.1875, true, 0x3a}, // ties to the even code
		{Float8E4M3FNUZ, 240, true, 0x7f}, {Float8E4M3FNUZ, -1e-9, true, 0},
		{Float8E4M3FNUZ, inf, false, 0x80},
		{Float8E5M2, 57344, true, 0x7b}, {Float8E5M2, inf, false, 0x7c}, {Float8E5M2, -inf, true, 0xfb},
		// half way to what would be an even code
		{Float8E5M2, 61440, false, 0x7c}, {Float8E5M2, 61439, false, 0x7b}, {Float8E5M2, -61440, true, 0xfb},
		{Float8E4M3FNUZ, 248, false, 0x80}, {Float8E4M3FNUZ, 247, false, 0x7f},
		{Float8E5M2FNUZ, -61440, false, 0x80}, {Float8E5M2FNUZ, -61439, false, 0xff},
		{Float8E5M2FNUZ, 57344, true, 0x7f}, {Float4E2M1, 6, true, 7}, {Float4E2M1, -2.5, true, 0xc},
		{Float4E2M1, 100, false, 7},
	} {
		if got := Float32ToNarrow(c.d, c.saturate)(c.v); got != c.want {
			t.Errorf("%v of %v (saturate %v) is %#x, want %#x", c.d, c.v, c.saturate, got, c.want)
		}
	}
}

// Packing and unpacking give every value back, and the first element lies in the low bits.
func TestPacking(t *testing.T) {
	for d, x := range map[DType]any{
		Int4: []int8{-8, 7, -1, 0, 3}, Uint4: []uint8{15, 0, 9, 1, 2}, Int2: []int8{-2, 1, 0, -1, 1},
		Uint2:      []uint8{3, 2, 1, 0, 3},
		Float8E5M2: []uint8{1, 2, 3, 4, 255},
	} {
		in := &Tensor{DType: d, Shape: []int{5}, Data: x}
		must.Do(t, CheckTensor(in))
		raw := PackedData(in)
		if int64(len(raw)) != d.RawBytes(5) {
			t.Errorf("%v: %d bytes", d, len(raw))
		}
		out := must.Get(Zeros(d, 5))(t)
		must.Do(t, UnpackData(out, raw))
		for i := range 5 {
			if a, b := in.At(i), out.At(i); a != b && (a == a || b == b) {
				t.Errorf("%v: element %d is %v, want %v", d, i, out.At(i), in.At(i))
			}
		}
		must.Fail(UnpackData(out, raw[1:]))(t, "", d)
	}
	if raw := PackedData(&Tensor{DType: Int4, Shape: []int{2}, Data: []int8{-8, 7}}); raw[0] != 0x78 {
		t.Errorf("two numbers of 4 bits are %#x, want 0x78", raw[0])
	}
}
