package conformance

import (
	"fmt"
	"math"

	"fmp/onnx"
)

// Compare says where two tensors differ by more than the tolerance: the worst element, and how many there are.
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
		g, w := element(got, i), element(want, i)
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
		return fmt.Errorf("%d of %d elements differ, the worst is number %d: %v where %v is expected", bad, want.Len(), at, element(got, at), element(want, at))
	}
	return nil
}

// element reads element i of a numeric or boolean tensor.
func element(t *onnx.Tensor, i int) float64 {
	switch d := t.Data.(type) {
	case []float32:
		return float64(d[i])
	case []float64:
		return d[i]
	case []int8:
		return float64(d[i])
	case []int16:
		return float64(d[i])
	case []int32:
		return float64(d[i])
	case []int64:
		return float64(d[i])
	case []uint8:
		return float64(d[i])
	case []uint16:
		switch t.DType {
		case onnx.Float16:
			return float16(d[i])
		case onnx.BFloat16:
			return float64(math.Float32frombits(uint32(d[i]) << 16))
		}
		return float64(d[i])
	case []uint32:
		return float64(d[i])
	case []uint64:
		return float64(d[i])
	case []bool:
		if d[i] {
			return 1
		}
	}
	return 0
}

// float16 is the value of an IEEE 754 binary16 number.
func float16(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10)&31, float64(h&0x3ff)
	if h>>15 == 1 {
		sign = -1
	}
	switch {
	case exp == 0:
		return sign * math.Ldexp(frac, -24)
	case exp < 31:
		return sign * math.Ldexp(1024+frac, exp-25)
	case frac == 0:
		return math.Inf(int(sign))
	}
	return math.NaN()
}
