package classify

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/dense"
)

// FeatureRows returns a tensor of feature rows (float32 or float64) as float32, and an error for a
// number that is not finite.
// The shape is [n, dx], and n may be 0. The tensor given is returned where it is float32, with its
// numbers shared; a float64 tensor is copied.
func FeatureRows(t *onnx.Tensor) (*onnx.Tensor, error) {
	t, err := AnyRows(t)
	if err != nil {
		return nil, err
	}
	for i, v := range t.F32() {
		// Inf - Inf and NaN - NaN are NaN, which differs from 0: one subtraction finds both.
		if v-v != 0 { // NaN or infinite
			return nil, fmt.Errorf("row %d has a number that is not finite", i/t.Shape[1])
		}
	}
	return t, nil
}

// AnyRows is FeatureRows of any numbers, for counts with noise: an error would tell of a row.
func AnyRows(t *onnx.Tensor) (*onnx.Tensor, error) {
	// A float64 beyond the range of float32 becomes infinite here.
	if d := t.F64(); d != nil {
		t = &onnx.Tensor{DType: onnx.Float32, Shape: t.Shape, Data: dense.As[float32](d)}
	}
	if t.DType != onnx.Float32 || len(t.Shape) != 2 {
		return nil, fmt.Errorf("it holds %v; feature rows are float32 or float64, [n, dx]", t)
	}
	return t, nil
}

// Labels returns the labels in a tensor of integers of 0 to classes-1, one per row.
// The tensor has one axis, of uint8 or of a type that [onnx.Tensor.Ints] reads. The number of rows
// is the caller's to compare.
func Labels(t *onnx.Tensor, classes int) ([]int, error) {
	var ys []int
	var err error
	if d := t.U8(); d != nil {
		for _, v := range d {
			ys = append(ys, int(v))
		}
	} else {
		ys, err = t.Ints()
	}
	if err != nil || len(t.Shape) != 1 {
		return nil, fmt.Errorf("it holds %v; labels are a row of integers", t)
	}
	for i, y := range ys {
		if y < 0 || y >= classes {
			return nil, fmt.Errorf("label %d of row %d; allowed are 0 to %d", y, i, classes-1)
		}
	}
	return ys, nil
}
