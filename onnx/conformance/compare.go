package conformance

import (
	"fmt"
	"math"

	"fmp/onnx"
)

// Compare returns where two tensors differ by more than the tolerance: the worst element, and how
// many there are.
func Compare(got, want *onnx.Tensor, tol Tolerance) error {
	if got == nil {
		return fmt.Errorf("missing")
	}
	if got.DType != want.DType {
		return fmt.Errorf("is %v where %v is expected", got.DType, want.DType)
	}
	if fmt.Sprint(got.Shape) != fmt.Sprint(want.Shape) {
		return fmt.Errorf("has shape %v where %v is expected", got.Shape, want.Shape)
	}
	if w, ok := want.Data.([]string); ok {
		for i, v := range got.Data.([]string) {
			if v != w[i] {
				return fmt.Errorf("element %d is %q where %q is expected", i, v, w[i])
			}
		}
		return nil
	}
	bad, worst, at := 0, -1.0, 0
	for i, n := 0, want.Len(); i < n; i++ {
		g, w := got.At(i), want.At(i)
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		d := math.Abs(g - w)
		if d <= tol.Absolute+tol.Relative*math.Abs(w) && !math.IsInf(w, 0) {
			continue
		}
		if math.IsNaN(d) {
			d = math.Inf(1)
		}
		if bad++; d > worst {
			worst, at = d, i
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d elements differ, the worst is number %d: %v where %v is expected",
			bad, want.Len(), at, got.At(at), want.At(at))
	}
	return nil
}
