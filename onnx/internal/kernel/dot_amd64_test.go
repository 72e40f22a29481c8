package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx"
)

// TestRowsOfBytes: products of rows that are read as they lie are those of the definition.
func TestRowsOfBytes(t *testing.T) {
	if !haveDots {
		t.Skip("the processor does not multiply bytes in vectors of 64")
	}
	testIntegerMatMul(t)
}

// TestStripsOfBytes: depthwise windows that go down strips are those of the definition, beside
// windows that are too wide for strips.
func TestStripsOfBytes(t *testing.T) {
	if !haveDots {
		t.Skip("the processor does not multiply bytes in vectors of 64")
	}
	r := rand.New(rand.NewPCG(9, 1))
	for _, across := range []int{1, 2, 3, 4, 6} {
		for range 20 {
			d, channels := []onnx.DType{onnx.Int8, onnx.Uint8}[r.IntN(2)], 1+r.IntN(5)
			size, stride := []int{1 + r.IntN(5), 1 + r.IntN(7)}, []int{1 + r.IntN(3), across}
			pads := []int{r.IntN(3), r.IntN(4), r.IntN(3), r.IntN(4)}
			x := drawnBytes(r, d, 2, channels, size[0]+r.IntN(20), size[1]+r.IntN(200))
			w, zx, zw := drawnBytes(r, onnx.Int8, channels, 1, size[0], size[1]), drawnBytes(r, d, 1),
				onnx.NewTensor(make([]int8, channels), channels)
			zx.Shape = nil
			one, n := onnx.Scalar(float32(1)), &onnx.Node{Op: "QLinearConv", Attrs: []onnx.Attr{
				onnx.IntsAttr("strides", stride...), onnx.IntsAttr("pads", pads...), onnx.IntAttr("group", channels)}}
			zy, every := onnx.Scalar(uint8(7)), onnx.ZerosF32(channels)
			fillRange(every.F32(), 1)
			if d == onnx.Int8 {
				zy = onnx.Scalar(int8(7))
			}
			got := evaluated(t, 2, n, map[int]bool{3: true, 5: true}, x, one, zx, w, every, zw, onnx.Scalar(float32(256)), zy)
			sums := byDefinition(x, w, zx, zw, got.Shape, channels, stride, []int{1, 1}, pads)
			lo, hi := limits(d)
			for i, v := range sums {
				if q := min(max(math.RoundToEven(float64(v)/256)+7, lo), hi); got.At(i) != q {
					t.Fatalf("x %v, w %v, strides %v, pads %v: element %d is %v where %v is expected", x.Shape, w.Shape,
						stride, pads, i, got.At(i), q)
				}
			}
		}
	}
}

// TestColumnsOfBytes: tiles that go over all columns give the convolutions of the definition.
func TestColumnsOfBytes(t *testing.T) {
	if !haveDots {
		t.Skip("the processor does not multiply bytes in vectors of 64")
	}
	testIntegerConv(t, 40)
}
