package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Matrix products. MatMulInteger sums in int32, for operands of 8 bits of either sign.
// QLinearMatMul has the matrices as inputs 0 and 3, and the result's type is that of y_zero_point,
// input 7.
var matmulRules = map[string]rule{
	"Gemm": inferGemm, "Einsum": inferEinsum, "Det": shaped(inferDet),
	"MatMul": func(c *call) {
		c.matmul(try.Get(sameType(c.in[0], c.in[1])), c.in[0].shape, c.in[1].shape)
	},
	"MatMulInteger": func(c *call) { c.matmul(onnx.Int32, c.in[0].shape, c.in[1].shape) },
	"QLinearMatMul": func(c *call) { c.matmul(c.in[7].dtype, c.in[0].shape, c.in[3].shape) },
}

// matmul: [..., m, k] x [..., k, n] -> [..., m, n]; a vector is a row on the left and a column on
// the right. The axes before the last two are broadcast, as those of numpy.matmul are. The size 1
// that a vector gains is not in the result, so that two vectors give a scalar.
func (c *call) matmul(d onnx.DType, a, b []expr) {
	c.set(0, d, nil)
	if a == nil || b == nil {
		return
	}
	if len(a) == 0 || len(b) == 0 {
		try.Fail("a scalar is no matrix")
	}
	row, col := len(a) == 1, len(b) == 1
	if row {
		a = []expr{constant(1), a[0]}
	}
	if col {
		b = []expr{b[0], constant(1)}
	}
	m, k := a[len(a)-2], a[len(a)-1]
	k2, n := b[len(b)-2], b[len(b)-1]
	// Unlike the axes in front, the inner ones are not broadcast: a size of 1 must meet a 1.
	if _, err := meet(k, k2); err != nil {
		try.Fail("inner %w", err)
	}
	out := try.Get(c.broadcast(a[:len(a)-2], b[:len(b)-2]))
	if !row {
		out = append(out, m)
	}
	if !col {
		out = append(out, n)
	}
	c.set(0, d, out)
}

// inferGemm: alpha A' B' + beta C, A' [m, k], B' [k, n], C broadcast to [m, n]. Either operand may
// be of unknown rank; its axis of the result and the inner check are then left out.
func inferGemm(c *call) {
	d := try.Get(sameType(c.in...))
	out := c.unknownSizes(2)
	var inner []expr
	for i, name := range []string{"transA", "transB"} {
		s := c.in[i].shape
		if s == nil {
			continue
		}
		if len(s) != 2 {
			try.Fail("operand %d is of rank %d; it must be a matrix", i, len(s))
		}
		// The outer axis is 0 of A and 1 of B, the other way round where transposed.
		o := i
		if c.attrs.Int(name) != 0 {
			o = 1 - i
		}
		out[i] = s[o]
		inner = append(inner, s[1-o])
	}
	if len(inner) == 2 {
		if _, err := meet(inner[0], inner[1]); err != nil {
			try.Fail("inner %w", err)
		}
	}
	c.set(0, d, out)
	// The bias is optional from operator set 11 on.
	c.broadcastTo(out, 2)
}

// inferDet: [..., m, m] -> [...], one determinant for each matrix of a batch.
func inferDet(c *call, x *fact) []expr {
	r := len(x.shape)
	if r < 2 {
		try.Fail("an input of rank %d; at least 2 are needed", r)
	}
	agree(x.shape[r-2], x.shape[r-1], "a square matrix is needed")
	return x.shape[:r-2]
}
