package grad

import (
	"strings"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

func init() { register(vjpEinsum, "Einsum") }

// vjpEinsum: the cotangent of one operand is the Einsum of the output's cotangent with the other
// operands. A letter of an operand that stands in neither of these was summed over alone: the
// cotangent is the same all along it. Of y = Einsum("ij,jk->ik", a, b) it is ā =
// Einsum("ik,jk->ij", ȳ, b), and so for each operand. A repeated letter takes a diagonal, whose
// adjoint Einsum cannot write.
func vjpEinsum(c *call) []string {
	equation := c.attrs.Str("equation")
	terms, result := try.Get2(op.EinsumTerms(equation))
	if len(terms) != len(c.node.Inputs) {
		try.Fail("equation %q is of %d operands and the node has %d",
			equation, len(terms), len(c.node.Inputs))
	}
	if strings.Contains(equation, ".") {
		try.Fail("equation %q: an ellipsis has no rule; write the letters out", equation)
	}
	for _, t := range terms {
		for i, l := range t {
			if strings.ContainsRune(t[i+1:], l) {
				try.Fail("equation %q: a letter repeated in one operand has no rule", equation)
			}
		}
	}
	out := make([]string, len(terms))
	for i, t := range terms {
		if !c.wants(i) {
			continue
		}
		// Sources are the terms of in, in the same order: the cotangent's first, then the other
		// operands'.
		in, sources := []string{c.g()}, []string{result}
		for j, other := range terms {
			if j != i {
				in, sources = append(in, c.in(j)), append(sources, other)
			}
		}
		// alone are the axes whose letters stand in no source, along which the cotangent is
		// constant.
		got, alone := "", []int{}
		for k, l := range t {
			if strings.ContainsRune(strings.Join(sources, ""), l) {
				got += string(l)
			} else {
				alone = append(alone, k)
			}
		}
		v := c.op("Einsum", in, onnx.StrAttr("equation", strings.Join(sources, ",")+"->"+got))
		if len(alone) > 0 {
			v = c.unsqueeze(v, alone...)
		}
		// An axis of 1 that was broadcast gets the sum over the axis, as every broadcast operand
		// does.
		uneven := c.uneven(terms, i)
		if len(alone) > 0 || uneven {
			v = c.op("Expand", []string{v, c.shapeOf(c.in(i))})
		}
		if uneven {
			v = c.unbroadcast(v, v, c.in(i))
		}
		out[i] = v
	}
	return out
}

// uneven reports whether a letter of operand i may have size 1 there or in another operand, and be
// broadcast. Sizes that are not known count as uneven; the sum over no broadcast axis then changes
// nothing.
func (c *call) uneven(terms []string, i int) bool {
	size := func(of, axis int) onnx.Dim {
		if s := c.shape(c.in(of)); axis < len(s) {
			return s[axis]
		}
		return onnx.Dim{Size: -1}
	}
	for j, t := range terms {
		for k, l := range t {
			at := strings.IndexRune(terms[i], l)
			if j == i || at < 0 {
				continue
			}
			if a, b := size(i, at), size(j, k); a != b || !a.IsKnown() && a.Symbol == "" {
				return true
			}
		}
	}
	return false
}
