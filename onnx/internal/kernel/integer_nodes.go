package kernel

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// newIntegerMatMul is for a matrix of constant columns: the filters of a convolution of one tap. A
// Gemm with transB has its weights as rows already.
func newIntegerMatMul(s *Spec, weights, zero int) *integerConv {
	v := &integerConv{group: 1, matrix: true, columns: s.Node.Op != "Gemm" || !s.bool("transB")}
	v.constants(s, weights, zero)
	return v
}

// suits returns the shape of a b, and how many columns it has. a is [..., k] and the result [...,
// n]. An empty b is left to the general way.
func (v *integerConv) suits(a, b *onnx.Tensor) (shape []int, n int, ok bool) {
	last := len(a.Shape) - 1
	if last < 0 || len(b.Shape) != 2 || b.Len() == 0 {
		return nil, 0, false
	}
	k, n := v.sides(b)
	return append(slices.Clone(a.Shape[:last]), n), n, a.Shape[last] == k
}

// sides are the inner and the outer side of b.
func (v *integerConv) sides(b *onnx.Tensor) (k, n int) {
	if v.columns {
		return b.Shape[0], b.Shape[1]
	}
	return b.Shape[1], b.Shape[0]
}

// matMul sets out, of bytes or of int32, to a b as q has it; false where b less its zero point is
// of no signed bytes. The rows of a are the places of an image, its columns the channels, and the
// columns of b the filters of one tap.
func (v *integerConv) matMul(c *Call, a, b, zb *onnx.Tensor, zero int32, q *requantized,
	out *onnx.Tensor) bool {
	k, n := v.sides(b)
	rows := a.Len() / k
	x := &onnx.Tensor{DType: a.DType, Shape: []int{1, k, rows}, Data: a.Data}
	w := &onnx.Tensor{DType: b.DType, Shape: []int{n, k, 1}, Data: b.Data}
	to := &onnx.Tensor{DType: out.DType, Shape: []int{1, n, rows}, Data: out.Data}
	return v.product(c, x, w, zb, zero, q, to, window{})
}

// operands are the places of the inputs of an operator on bytes.
type operands struct{ a, b, za, zb int }

// operandsOf: the Integer operators have a, b and their zero points; all others have scales
// between. QLinearConv reads x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero and B;
// QLinearMatMul the same with a, b and no bias.
func operandsOf(op string) operands {
	if op == "ConvInteger" || op == "MatMulInteger" {
		return operands{0, 1, 2, 3}
	}
	return operands{0, 3, 2, 5}
}

// output makes the output of sums that are not quantised, or of quanta of the type d. A quantum of
// the sums is x_scale w_scale / y_scale quanta of the output.
func (o operands) output(c *Call, d onnx.DType, shape []int,
	then *after) (*onnx.Tensor, *requantized) {
	q := &requantized{}
	if o.b == 3 {
		step, last := stepOf(c, 1, 4), c.In[4].Len()-1
		out := float32(c.In[6].At(0))
		q.scale = func(channel int) float32 { return step(min(channel, last)) }
		q.saturation = saturationOf(d, c.In[7].At(0))
		// Bounds of a Clip or Relu behind the node are held in quanta of the output, in which they
		// cost nothing.
		if then != nil {
			q.lo, q.hi = max(q.lo, nearest(then.lo/out)), min(q.hi, nearest(then.hi/out))
		}
		if b := c.in(8); b != nil {
			q.bias = data[int32](b)
		}
	}
	return try.Get(c.New(0, d, shape)), q
}

// nearest is a bound in quanta, rounded as the sums are. Ties go to even, as in QuantizeLinear.
func nearest(v float32) float32 { return float32(math.RoundToEven(float64(v))) }

// fit reports whether zero points, scales and a bias are of as many numbers as there are filters,
// or of one. in(i) is nil where input i is left out.
func (o operands) fit(in func(int) *onnx.Tensor, filters int) bool {
	one := func(i int) bool { return in(i) == nil || in(i).Len() == 1 }
	some := func(i int) bool {
		return one(i) || len(in(i).Shape) == 1 &&
			in(i).Len() == filters
	}
	if o.b == 3 && !(one(1) && one(6) && one(7) && some(4) &&
		(in(8) == nil || in(8).Len() == filters)) {
		return false
	}
	return one(o.za) && some(o.zb)
}

// convOfBytes is a ConvInteger, a QLinearConv, or a Conv with a QLinearConv's inputs; k is run
// where it is of another kind, and may be nil. Without k an operator whose weights are not constant
// signed bytes is refused when it is prepared. An output that was made in vain goes back to the
// pool before k makes its own.
func convOfBytes(s *Spec, k Kernel) (Kernel, error) {
	win, group := newGroups(s)
	o, d, then := operandsOf(s.Node.Op), s.Out[0], newAfter(s)
	v := &integerConv{group: group}
	v.constants(s, o.b, o.zb)
	if k == nil && (v.filters(v.weights, v.zero) == nil || !o.fit(s.constant, v.weights.Shape[0])) {
		return nil, errors.New("weights that are no constant signed bytes are not supported")
	}
	return func(c *Call) error {
		x, w := c.In[o.a], c.In[o.b]
		fitted, sp, err := convShape(win, group, x.Shape, w.Shape)
		if err == nil && o.fit(c.in, w.Shape[0]) {
			out, q := o.output(c, d, append([]int{x.Shape[0], w.Shape[0]}, sp...), then)
			if v.product(c, x, w, c.in(o.zb), zeroOf(c.in(o.za)), q, out, fitted) {
				return nil
			}
			c.env.Pool.Put(out.Data)
			c.Out[0] = nil
		}
		if k == nil {
			return errors.Join(err, fmt.Errorf("a convolution of %v with %v", x, w))
		}
		return k(c)
	}, nil
}

// matMulOfBytes is a MatMulInteger, a QLinearMatMul, or a MatMul or Gemm with a QLinearMatMul's
// inputs and a bias.
func matMulOfBytes(s *Spec, k Kernel) (Kernel, error) {
	o, d := operandsOf(s.Node.Op), s.Out[0]
	v := newIntegerMatMul(s, o.b, o.zb)
	if v.weights == nil || len(v.weights.Shape) != 2 || v.filters(v.weights, v.zero) == nil {
		if k == nil {
			return nil, errors.New("weights that are no constant matrix of signed bytes are not supported")
		}
		return k, nil
	}
	if _, n := v.sides(v.weights); k == nil && !o.fit(s.constant, n) {
		return nil, errors.New("scales, zero points or a bias of another size than the columns are not supported")
	}
	return func(c *Call) error {
		a, b := c.In[o.a], c.In[o.b]
		// A Gemm takes matrices alone, where a MatMul takes stacks of them.
		ok := s.Node.Op != "Gemm" || len(a.Shape) == 2
		if shape, n, suits := v.suits(a, b); ok && suits && o.fit(c.in, n) {
			out, q := o.output(c, d, shape, nil)
			if v.matMul(c, a, b, c.in(o.zb), zeroOf(c.in(o.za)), q, out) {
				return nil
			}
			c.env.Pool.Put(out.Data)
			c.Out[0] = nil
		}
		if k == nil {
			return fmt.Errorf("a product of %v and %v", a, b)
		}
		return k(c)
	}, nil
}

// zeroOf is a zero point, 0 where it is left out.
func zeroOf(t *onnx.Tensor) int32 {
	if t == nil {
		return 0
	}
	return int32(t.At(0))
}

// quantizeRuns is a QuantizeLinear of float32 to bytes, or k.
func quantizeRuns(s *Spec, k Kernel) (Kernel, error) {
	q, d := newQuantization(s), s.Out[0]
	if !bytes.Has(d) || s.In[0] != onnx.Float32 {
		return k, nil
	}
	return func(c *Call) error {
		return q.runs(c, k, d, func(to, from *onnx.Tensor, lo, hi int, scale, zero float64) {
			b, _ := bytesOf(to)
			quantizeRow(b[lo:hi], from.F32()[lo:hi], float32(scale), saturationOf(d, zero))
		})
	}, nil
}

// dequantizeRuns is a DequantizeLinear of bytes to float32, or k.
func dequantizeRuns(s *Spec, k Kernel) (Kernel, error) {
	q, d := newQuantization(s), s.In[0]
	if !bytes.Has(d) || s.Out[0] != onnx.Float32 {
		return k, nil
	}
	return func(c *Call) error {
		return q.runs(c, k, onnx.Float32,
			func(to, from *onnx.Tensor, lo, hi int, scale, zero float64) {
				b, _ := bytesOf(from)
				dequantizeRow(to.F32()[lo:hi], b[lo:hi], quantumOf(d, scale, zero))
			})
	}, nil
}

// runs calls f on the runs of the input that have one scale and zero point, or runs k where they
// are by block or do not match. A run is all numbers, or those behind one position of the axis.
func (q quantization) runs(c *Call, k Kernel, d onnx.DType,
	f func(to, from *onnx.Tensor, lo, hi int, scale, zero float64)) error {
	x, scale, zero := c.In[0], c.In[1], c.in(2)
	axis, run := q.axis, x.Len()
	if axis < 0 {
		axis += len(x.Shape)
	}
	switch {
	case q.block != 0 || scale.Len() == 0 || zero != nil && zero.Len() != scale.Len():
		return k(c)
	case scale.Len() > 1:
		if axis < 0 || axis >= len(x.Shape) || len(scale.Shape) != 1 ||
			scale.Len() != x.Shape[axis] {
			return k(c)
		}
		run = product(x.Shape[axis+1:])
	}
	out := try.Get(c.New(0, d, x.Shape))
	for lo := 0; lo < x.Len(); lo += run {
		i, z := lo/run%scale.Len(), 0.0
		if zero != nil {
			z = zero.At(i)
		}
		f(out, x, lo, lo+run, scale.At(i), z)
	}
	return nil
}
