package kernel

import (
	"math"
	"testing"

	"fmp/onnx"
)

// TestClipWithoutBounds: a bound that is left out is the type's lowest or greatest finite number.
func TestClipWithoutBounds(t *testing.T) {
	inf := math.Inf(1)
	x := onnx.NewTensor([]float32{float32(-inf), 1, float32(inf)}, 3)
	d := onnx.NewTensor([]float64{-inf, 1, inf}, 3)
	five := onnx.Scalar(float32(5))
	half := func(d onnx.DType, bits ...uint16) *onnx.Tensor {
		return &onnx.Tensor{DType: d, Shape: []int{len(bits)}, Data: bits}
	}
	for _, c := range []struct {
		in   []*onnx.Tensor
		want [3]float64
	}{
		{[]*onnx.Tensor{x}, [3]float64{-math.MaxFloat32, 1, math.MaxFloat32}},
		{[]*onnx.Tensor{d}, [3]float64{-math.MaxFloat64, 1, math.MaxFloat64}},
		{[]*onnx.Tensor{x, five}, [3]float64{5, 5, math.MaxFloat32}},
		{[]*onnx.Tensor{half(onnx.Float16, 0xfc00, 0x3c00, 0x7c00)}, [3]float64{-65504, 1, 65504}},
		{[]*onnx.Tensor{half(onnx.BFloat16, 0xff80, 0x3f80, 0x7f80)},
			[3]float64{-0xffp120, 1, 0xffp120}},
		{[]*onnx.Tensor{onnx.NewTensor([]int64{math.MinInt64, 1, 7}, 3)}, [3]float64{math.MinInt64, 1, 7}},
	} {
		got := evaluated(t, 1, &onnx.Node{Op: "Clip"}, nil, c.in...)
		for i, v := range c.want {
			if got.At(i) != v {
				t.Errorf("%v of %v: element %d is %v, want %v", got.DType, c.in[0].Data, i, got.At(i), v)
			}
		}
	}
}

// TestProductOverNothing: a product over an inner axis of size 0 is zero, in any number of rows.
func TestProductOverNothing(t *testing.T) {
	for _, rows := range []int{1, 25, 64, 300} {
		got := evaluated(t, 2, &onnx.Node{Op: "MatMul"}, nil, onnx.ZerosF32(rows, 0), onnx.ZerosF32(0, 6))
		if got.Len() != rows*6 {
			t.Fatalf("%d rows: %v", rows, got)
		}
		for i := range got.Len() {
			if got.At(i) != 0 {
				t.Fatalf("%d rows: element %d is %v", rows, i, got.At(i))
			}
		}
	}
}
