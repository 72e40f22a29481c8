package conformance

import (
	"fmt"
	"math"

	"fmp/onnx"
)

// Compare returns where two tensors differ by more than the tolerance: the worst element, and how
// many there are.
// A number fits where |got - want| <= absolute + relative |want|, as in numpy's allclose. NaN fits
// NaN alone, and an infinity itself alone. Types, shapes and strings must be equal. want must
// not be nil; a got of nil is an output that the engine did not give.
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
		d := distance(got, want, i)
		if d == 0 || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
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
			bad, want.Len(), at, number(got, at), number(want, at))
	}
	return nil
}

// distance is |got - want| of element i, 0 where both are the same infinity. Integers of 64 bits
// are subtracted before they are rounded to float64.
func distance(got, want *onnx.Tensor, i int) float64 {
	switch w := want.Data.(type) {
	case []int64:
		g := got.Data.([]int64)[i]
		return float64(uint64(max(g, w[i])) - uint64(min(g, w[i])))
	case []uint64:
		g := got.Data.([]uint64)[i]
		return float64(max(g, w[i]) - min(g, w[i]))
	}
	if g, w := got.At(i), want.At(i); g != w {
		return math.Abs(g - w)
	}
	return 0
}

// number is element i as it is printed, with all digits of an integer.
func number(t *onnx.Tensor, i int) any {
	switch d := t.Data.(type) {
	case []int64:
		return d[i]
	case []uint64:
		return d[i]
	}
	return t.At(i)
}
