package kernel

import (
	"fmt"

	"fmp/onnx"
)

// And, Or, Xor, Not on booleans; BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot and BitShift on
// integers.
func init() {
	register(
		Def{Op: "And", Since: 7, New: booleanOf(func(a, b bool) bool { return a && b })},
		Def{Op: "Or", Since: 7, New: booleanOf(func(a, b bool) bool { return a || b })},
		Def{Op: "Xor", Since: 7, New: booleanOf(func(a, b bool) bool { return a != b })},
		Def{Op: "Not", Since: 1, New: newNot},
		Def{Op: "BitwiseAnd", Since: 18, New: newBitwiseAnd},
		Def{Op: "BitwiseOr", Since: 18, New: newBitwiseOr},
		Def{Op: "BitwiseXor", Since: 18, New: newBitwiseXor},
		Def{Op: "BitwiseNot", Since: 18, New: newBitwiseNot},
		Def{Op: "BitShift", Since: 11, New: newBitShift},
	)
}

func booleanOf(f func(a, b bool) bool) func(*Spec) (Kernel, error) {
	row := each(f)
	return func(*Spec) (Kernel, error) {
		return func(c *Call) error { return binary[bool, bool](c, onnx.Bool, 2, row) }, nil
	}
}

func newNot(*Spec) (Kernel, error) {
	return unaryOf(1, func(v bool) bool { return !v }), nil
}

func and[T integer](a, b T) T { return a & b }
func or[T integer](a, b T) T  { return a | b }
func xor[T integer](a, b T) T { return a ^ b }
func not[T integer](a T) T    { return ^a }

// integral picks the kernel for an integer input 0: see numeric.
func integral(s *Spec, i64, u64 Kernel) (Kernel, error) { return numeric(s, nil, nil, i64, u64) }

func newBitwiseAnd(s *Spec) (Kernel, error) {
	return integral(s, binaryOf(each(and[int64])), binaryOf(each(and[uint64])))
}

func newBitwiseOr(s *Spec) (Kernel, error) {
	return integral(s, binaryOf(each(or[int64])), binaryOf(each(or[uint64])))
}

func newBitwiseXor(s *Spec) (Kernel, error) {
	return integral(s, binaryOf(each(xor[int64])), binaryOf(each(xor[uint64])))
}

func newBitwiseNot(s *Spec) (Kernel, error) {
	return integral(s, unaryOf(1, not[int64]), unaryOf(1, not[uint64]))
}

// BitShift: direction "LEFT" or "RIGHT" (no default). Shifting by the width or more, or by less
// than nothing, leaves 0, or -1 of a negative number to the right.
func newBitShift(s *Spec) (Kernel, error) {
	switch dir := s.str("direction"); dir {
	case "LEFT":
		return integral(s, binaryOf(each(shl[int64])), binaryOf(each(shl[uint64])))
	case "RIGHT":
		return integral(s, binaryOf(each(shr[int64])), binaryOf(each(shr[uint64])))
	default:
		return nil, fmt.Errorf("direction %q is neither LEFT nor RIGHT", dir)
	}
}

func shl[T integer](a, b T) T {
	if b < 0 {
		return 0
	}
	return a << b
}

func shr[T integer](a, b T) T {
	if b < 0 {
		b = 63
	}
	return a >> b
}
