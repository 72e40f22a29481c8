package conformance

import (
	"fmt"
	"math"

	"fmp/onnx"
)

// Compare returns where two tensors differ by more than the tolerance: the worst element, and how
// many there are.
// A number fits where |got - want| <= absolute + relative |want|, as in numpy's allclose. NaN fits
// NaN alone, and an infinity itself alone. Types, shapes and strings must be equal. 64-bit integers
// are compared as float64, so that differences beyond 2^53 may not show. want must not be nil; a
// got of nil is an output that the engine did not give.
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
	// Strings have no tolerance. The types are equal by here, so that got holds strings as well.
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
		// An infinite w makes the tolerance infinite, which every number would meet.
		if d <= tol.Absolute+tol.Relative*math.Abs(w) && !math.IsInf(w, 0) {
			continue
		}
		// A NaN on one side counts as the largest difference, so that the message names it.
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
