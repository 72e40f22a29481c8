package onnx

import (
	"math"
	"testing"
)

// TestFloat32ToFloat16: every half survives the round trip, and what lies between two neighbours
// goes to the nearer.
func TestFloat32ToFloat16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		v := HalfToFloat32(Float16, h)
		got := Float32ToFloat16(v)
		if v != v {
			if w := HalfToFloat32(Float16, got); w == w {
				t.Fatalf("%#x, not a number, came back as %v", h, w)
			}
			continue
		}
		if got != h {
			t.Fatalf("%#x (%v) came back as %#x", h, v, got)
		}
		next := HalfToFloat32(Float16, h+1)
		if h&0x7fff >= 0x7bff { // the largest finite number has no neighbour
			continue
		}
		middle := (v + next) / 2 // exact in float32
		even := h + h&1
		for _, c := range []struct {
			at   float32
			want uint16
		}{{math.Nextafter32(middle, v), h}, {middle, even}, {math.Nextafter32(middle, next), h + 1}} {
			if got := Float32ToFloat16(c.at); got != c.want {
				t.Fatalf("%v between %v and %v gives %#x, want %#x", c.at, v, next, got, c.want)
			}
		}
	}
	for v, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, -1e30: 0xfc00,
		float32(math.Inf(1)): 0x7c00} {
		if got := Float32ToFloat16(v); got != want {
			t.Errorf("%v gives %#x, want %#x", v, got, want)
		}
	}
}

func TestHalfToFloat32(t *testing.T) {
	// Binary16 by its definition: (-1)^s 2^(e-15) (1 + f/1024), subnormals 2^-24 f.
	for b := range 1 << 16 {
		s, e, f := b>>15, b>>10&0x1f, b&0x3ff
		want := math.Ldexp(1+float64(f)/1024, e-15)
		switch {
		case e == 0:
			want = math.Ldexp(float64(f), -24)
		case e == 31 && f == 0:
			want = math.Inf(1)
		case e == 31:
			want = math.NaN()
		}
		if s == 1 {
			want = -want
		}
		got := float64(HalfToFloat32(Float16, uint16(b)))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) ||
			math.Signbit(got) != math.Signbit(want) && !math.IsNaN(want) {
			t.Fatalf("%#04x is %v, want %v", b, got, want)
		}
	}
	if got := HalfToFloat32(BFloat16, 0xc049); got != -3.140625 {
		t.Errorf("bfloat16 0xc049 is %v", got)
	}
}
