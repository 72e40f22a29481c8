package grad

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(vjpMatMul, "MatMul")
	register(vjpGemm, "Gemm")
}

// vjpMatMul: Ā = Ȳ Bᵀ and B̄ = Aᵀ Ȳ, summed over the stacks of matrices that were broadcast. A
// vector is taken for a matrix of one row (left) or one column (right), as MatMul does. Ranks must
// be known, since they tell which operand is a vector and how many axes are a stack.
func vjpMatMul(c *call) []string {
	a, b, g := c.in(0), c.in(1), c.g()
	ra := c.rank(a)
	rb := c.rank(b)
	if ra == 0 || rb == 0 {
		try.Fail("MatMul of a scalar")
	}
	sa, sb, sg := c.shape(a), c.shape(b), c.shape(c.out(0))
	if sg == nil {
		try.Fail("the rank of %q is not known; export the model with its input shapes",
			c.out(0))
	}
	am, bm := a, b
	if rb == 1 {
		bm = c.unsqueeze(b, 1)
		sb = append(append([]onnx.Dim{}, sb...), onnx.Known(1))
		// Y has no axis for the one column, which stands last.
		g = c.unsqueeze(g, len(sg))
		sg = append(append([]onnx.Dim{}, sg...), onnx.Known(1))
	}
	if ra == 1 {
		am = c.unsqueeze(a, 0)
		sa = append([]onnx.Dim{onnx.Known(1)}, sa...)
		// Y has no axis for the one row, which stands before the last.
		g = c.unsqueeze(g, len(sg)-1)
		last := sg[len(sg)-1]
		sg = append(append([]onnx.Dim{}, sg[:len(sg)-1]...), onnx.Known(1), last)
	}
	d := c.dtype(a)
	// stack is the broadcast stack's shape, without the axes of the matrices.
	stack := sg[:len(sg)-2]
	out := []string{"", ""}
	if c.wants(0) {
		v := c.op("MatMul", []string{g, c.swapLast(bm, len(sb))})
		// Emitted values have no inferred shape, and unbroadcast looks at the shape of v.
		c.shaped(v, d, append(append([]onnx.Dim{}, stack...), sa[len(sa)-2:]...))
		c.shapedIfNew(am, d, sa)
		out[0] = c.unbroadcast(v, v, am)
		if ra == 1 {
			out[0] = c.squeeze(out[0], 0)
		}
	}
	if c.wants(1) {
		// Axes of unknown size count as a stack of their own, since they may be over 1.
		single := !slices.ContainsFunc(sb[:len(sb)-2],
			func(d onnx.Dim) bool { return !d.IsKnown() || d.Size != 1 })
		if single && len(sa) > 2 && len(sg) == len(sa) {
			// One matrix for the whole stack: one product over all rows. The stack becomes rows, [S
			// m, k] and [S m, n], and the sum over S is part of the product.
			rows := func(v string, s []onnx.Dim) string {
				return c.op("Flatten", []string{v}, onnx.IntAttr("axis", len(s)-1))
			}
			out[1] = c.op("MatMul", []string{c.transpose(rows(am, sa), 1, 0), rows(g, sg)})
			for range len(sb) - 2 {
				out[1] = c.unsqueeze(out[1], 0)
			}
		} else {
			v := c.op("MatMul", []string{c.swapLast(am, len(sa)), g})
			c.shaped(v, d, append(append([]onnx.Dim{}, stack...), sb[len(sb)-2:]...))
			c.shapedIfNew(bm, d, sb)
			out[1] = c.unbroadcast(v, v, bm)
		}
		if rb == 1 {
			out[1] = c.squeeze(out[1], 1)
		}
	}
	return out
}

// shapedIfNew notes the type and shape of a value that has none so far.
func (e *emitter) shapedIfNew(v string, d onnx.DType, s []onnx.Dim) {
	if _, ok := e.info[v]; !ok {
		e.shaped(v, d, s)
	}
}

// vjpGemm: Y = α A' B' + β C, where A' and B' are A and B or their transposes. Cotangents of A and
// B are transposed as these are, and that of C is summed over its broadcast:
//
//	Ā' = α Ȳ B'ᵀ,  B̄' = α A'ᵀ Ȳ,  C̄ = β Ȳ
//
// Where A is transposed its own cotangent is the transpose of Ā', α B' Ȳᵀ, and for B likewise α Ȳᵀ
// A'.
func vjpGemm(c *call) []string {
	a, b, g := c.in(0), c.in(1), c.g()
	alpha, beta := c.attrs.Float("alpha"), c.attrs.Float("beta")
	ta, tb := c.attrs.Int("transA"), c.attrs.Int("transB")
	gemm := func(x, y string, tx, ty int) string {
		attrs := []onnx.Attr{onnx.IntAttr("transA", tx), onnx.IntAttr("transB", ty)}
		if alpha != 1 {
			attrs = append(attrs, onnx.FloatAttr("alpha", alpha))
		}
		return c.op("Gemm", []string{x, y}, attrs...)
	}
	out := []string{"", "", ""}
	if c.wants(0) {
		if ta == 1 {
			out[0] = gemm(b, g, tb, 1)
		} else {
			out[0] = gemm(g, b, 0, 1-tb)
		}
	}
	if c.wants(1) {
		if tb == 1 {
			out[1] = gemm(g, a, 1, ta)
		} else {
			out[1] = gemm(a, g, 1-ta, 0)
		}
	}
	if c.wants(2) {
		out[2] = c.scale(c.unbroadcast(g, c.out(0), c.in(2)), float64(beta), c.in(2))
	}
	return out
}
