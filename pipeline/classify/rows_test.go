package classify

import (
	"math"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
)

// TestFeatureRows: a row that is not finite is named, before the classifier is blamed for it.
func TestFeatureRows(t *testing.T) {
	for name, x := range map[string]struct {
		rows *onnx.Tensor
		want string // of the error; empty: none
	}{
		"float32":  {onnx.NewTensor([]float32{1, 2, 3, 4}, 2, 2), ""},
		"float64":  {onnx.NewTensor([]float64{1, 2, 3, 4}, 2, 2), ""},
		"none":     {onnx.NewTensor([]float32{}, 0, 2), ""},
		"NaN":      {onnx.NewTensor([]float32{1, 2, 3, float32(math.NaN())}, 2, 2), "row 1 has"},
		"infinite": {onnx.NewTensor([]float32{float32(math.Inf(-1)), 2}, 1, 2), "row 0 has"},
		"too wide": {onnx.NewTensor([]float64{1, 2, 1e300, 4}, 2, 2), "row 1 has"},
		"a vector": {onnx.NewTensor([]float32{1}, 1), "[n, dx]"},
	} {
		if _, err := FeatureRows(x.rows); x.want == "" {
			must.Do(t, err)
		} else {
			must.Fail(0, err)(t, x.want, name)
		}
	}
}
