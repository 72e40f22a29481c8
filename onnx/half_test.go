package onnx

import (
	"math"
	"testing"
)

// TestFloat32ToFloat16: every half survives the round trip, and what lies between two neighbours goes to the nearer.
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
	for v, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, -1e30: 0xfc00, float32(math.Inf(1)): 0x7c00} {
		if got := Float32ToFloat16(v); got != want {
			t.Errorf("%v gives %#x, want %#x", v, got, want)
		}
	}
}
