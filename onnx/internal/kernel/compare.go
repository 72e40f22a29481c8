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

// newComparison chooses the loop when the node is prepared. Package op has checked that both inputs
// are of one type and that the operator takes it.
func newComparison(s *Spec) (Kernel, error) {
	op := s.Node.Op
	switch s.In[0] {
	case onnx.Bool:
		return compareOf(each(func(a, b bool) bool { return a == b })), nil
	case onnx.String: // of Equal alone
		return compareOf(each(func(a, b string) bool { return a == b })), nil
	}
	return numeric(s, comparison[float32](op), comparison[float64](op), comparison[int64](op),
		comparison[uint64](op))
}

// comparison has two loops a type, < and <=: a > b is b < a. NaN holds in neither direction, which
// a negated comparison would not give.
func comparison[T cmp.Ordered](op string) Kernel {
	if op == "Equal" {
		return compareOf(each(func(a, b T) bool { return a == b }))
	}
	row := each(func(a, b T) bool { return a <= b })
	if op == "Greater" || op == "Less" {
		row = each(func(a, b T) bool { return a < b })
	}
	if op == "Less" || op == "LessOrEqual" {
		return compareOf(row)
	}
	return compareOf(func(dst []bool, a, b []T) { row(dst, b, a) })
}

// compareOf broadcasts a row function of two operands to a boolean result.
func compareOf[T any](row func(dst []bool, a, b []T)) Kernel {
	return func(c *Call) error { return binary[T, bool](c, onnx.Bool, 2, row) }
}
