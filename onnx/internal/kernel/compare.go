package kernel

import (
	"cmp"

	"fmp/onnx"
)

// Equal, Greater, GreaterOrEqual, Less, LessOrEqual: out = a ∘ b, boolean, with broadcasting. A
// comparison with NaN is false.
func init() {
	register(
		Def{Op: "Equal", Since: 7, Half: true, New: newEqual},
		Def{Op: "Greater", Since: 7, Half: true, New: newGreater},
		Def{Op: "GreaterOrEqual", Since: 12, Half: true, New: newGreaterOrEqual},
		Def{Op: "Less", Since: 7, Half: true, New: newLess},
		Def{Op: "LessOrEqual", Since: 12, Half: true, New: newLessOrEqual},
	)
}

func newEqual(s *Spec) (Kernel, error) {
	switch s.In[0] {
	case onnx.Bool:
		return compareOf(func(a, b bool) bool { return a == b }), nil
	case onnx.String:
		return compareOf(func(a, b string) bool { return a == b }), nil
	}
	return numeric(s, compareOf(eq[float32]), compareOf(eq[float64]), compareOf(eq[int64]),
		compareOf(eq[uint64]))
}

func newGreater(s *Spec) (Kernel, error) {
	return numeric(s, compareOf(gt[float32]), compareOf(gt[float64]), compareOf(gt[int64]),
		compareOf(gt[uint64]))
}

func newGreaterOrEqual(s *Spec) (Kernel, error) {
	return numeric(s, compareOf(ge[float32]), compareOf(ge[float64]), compareOf(ge[int64]),
		compareOf(ge[uint64]))
}

func newLess(s *Spec) (Kernel, error) {
	return numeric(s, compareOf(lt[float32]), compareOf(lt[float64]), compareOf(lt[int64]),
		compareOf(lt[uint64]))
}

func newLessOrEqual(s *Spec) (Kernel, error) {
	return numeric(s, compareOf(le[float32]), compareOf(le[float64]), compareOf(le[int64]),
		compareOf(le[uint64]))
}

func eq[T comparable](a, b T) bool  { return a == b }
func gt[T cmp.Ordered](a, b T) bool { return a > b }
func ge[T cmp.Ordered](a, b T) bool { return a >= b }
func lt[T cmp.Ordered](a, b T) bool { return a < b }
func le[T cmp.Ordered](a, b T) bool { return a <= b }

func compareOf[T any](f func(a, b T) bool) Kernel {
	row := each(f)
	return func(c *Call) error { return binary[T, bool](c, onnx.Bool, 2, row) }
}
