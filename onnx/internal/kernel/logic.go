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
		Def{Op: "BitwiseAnd", Since: 18, New: newBitwise},
		Def{Op: "BitwiseOr", Since: 18, New: newBitwise},
		Def{Op: "BitwiseXor", Since: 18, New: newBitwise},
		Def{Op: "BitwiseNot", Since: 18, New: newBitwise},
		Def{Op: "BitShift", Since: 11, New: newBitShift},
	)
}

// booleanOf makes the kernel of a truth table, with broadcasting. The table is called for each pair
// of elements.
func booleanOf(f func(a, b bool) bool) func(*Spec) (Kernel, error) {
	row := each(f)
	return func(*Spec) (Kernel, error) {
		return func(c *Call) error { return binary[bool, bool](c, onnx.Bool, 2, row) }, nil
	}
}

func newNot(*Spec) (Kernel, error) {
	return unaryOf(1, func(v bool) bool { return !v }), nil
}

// newBitwise computes narrow integers in 64 bits; cutting them afterwards is exact for these four.
func newBitwise(s *Spec) (Kernel, error) {
	return numeric(s, nil, nil, bitwise[int64](s.Node.Op), bitwise[uint64](s.Node.Op))
}

// bitwise is the row function of one of four operators, chosen when the node is prepared.
func bitwise[T integer](op string) Kernel {
	switch op {
	case "BitwiseAnd":
		return binaryOf(each(func(a, b T) T { return a & b }))
	case "BitwiseOr":
		return binaryOf(each(func(a, b T) T { return a | b }))
	case "BitwiseXor":
		return binaryOf(each(func(a, b T) T { return a ^ b }))
	}
	return unaryOf(1, func(a T) T { return ^a })
}

// BitShift: direction "LEFT" or "RIGHT" (no default). Shifting by the width or more, or by less
// than nothing, leaves 0, or -1 of a negative number to the right. Types of fewer bits are shifted
// in 64 bits and cut, which gives the same.
func newBitShift(s *Spec) (Kernel, error) {
	switch dir := s.str("direction"); dir {
	case "LEFT":
		return numeric(s, nil, nil, binaryOf(each(shl[int64])), binaryOf(each(shl[uint64])))
	case "RIGHT":
		return numeric(s, nil, nil, binaryOf(each(shr[int64])), binaryOf(each(shr[uint64])))
	default:
		return nil, fmt.Errorf("direction %q is neither LEFT nor RIGHT", dir)
	}
}

// shl and shr shift in 64 bits; Go leaves 0, or the sign, for as many bits or more.
func shl[T integer](a, b T) T {
	if b < 0 {
		return 0
	}
	return a << b
}

func shr[T integer](a, b T) T {
	if b < 0 {
		// Shifting by 63 leaves the sign alone, as shifting by more would.
		b = 63
	}
	return a >> b
}
