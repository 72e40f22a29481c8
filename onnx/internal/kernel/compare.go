package kernel

import (
	"cmp"

	"fmp/onnx"
)

// Equal, Greater, GreaterOrEqual, Less, LessOrEqual: out = a ∘ b, boolean, with broadcasting. A
// comparison with NaN is false.
func init() {
	register(
		Def{Op: "Equal", Since: 7, Half: true, New: newComparison},
		Def{Op: "Greater", Since: 7, Half: true, New: newComparison},
		Def{Op: "GreaterOrEqual", Since: 12, Half: true, New: newComparison},
		Def{Op: "Less", Since: 7, Half: true, New: newComparison},
		Def{Op: "LessOrEqual", Since: 12, Half: true, New: newComparison},
	)
}

func newComparison(s *Spec) (Kernel, error) {
	op := s.Node.Op
	switch s.In[0] {
	case onnx.Bool:
		return compareOf(func(a, b bool) bool { return a == b }), nil
	case onnx.String:
		return comparison[string](op), nil
	}
	return numeric(s, comparison[float32](op), comparison[float64](op), comparison[int64](op),
		comparison[uint64](op))
}

func comparison[T cmp.Ordered](op string) Kernel {
	switch op {
	case "Equal":
		return compareOf(func(a, b T) bool { return a == b })
	case "Greater":
		return compareOf(func(a, b T) bool { return a > b })
	case "GreaterOrEqual":
		return compareOf(func(a, b T) bool { return a >= b })
	case "Less":
		return compareOf(func(a, b T) bool { return a < b })
	}
	return compareOf(func(a, b T) bool { return a <= b })
}

func compareOf[T any](f func(a, b T) bool) Kernel {
	row := each(f)
	return func(c *Call) error { return binary[T, bool](c, onnx.Bool, 2, row) }
}
