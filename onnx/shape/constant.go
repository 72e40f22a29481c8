package shape

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Operators that make shapes and other values from sizes: where constant propagation begins.
var shapeRules = map[string]rule{
	"Shape": inferShape, "Size": inferSize, "Constant": inferConstant,
	"ConstantOfShape": inferConstantOfShape,
	"Range":           inferRange, "NonZero": inferNonZero, "EyeLike": inferLike,
	"OneHot": inferOneHot,
}

// inferShape follows the sizes of the axes from start to end, which may be symbols. start and end
// came in operator set 15; before it they are absent and all axes are listed. Bounds out of range
// are clamped, not refused, as the standard says.
func inferShape(c *call) {
	x := c.in[0]
	if !x.ranked() {
		c.set(0, onnx.Int64, []expr{c.inf.unknownSize()})
		return
	}
	r := len(x.shape)
	clamp := func(v int) int {
		if v < 0 {
			v += r
		}
		return min(max(v, 0), r)
	}
	start, end := clamp(c.attrs.Int("start")), r
	if c.attrs.Has("end") {
		end = clamp(c.attrs.Int("end"))
	}
	part := x.shape[start:max(start, end)]
	c.set(0, onnx.Int64, []expr{constant(len(part))})
	c.follow(part)
}

// inferSize follows the product of the sizes. The product is unknown where its polynomial is beyond
// the bounds of an expression.
func inferSize(c *call) {
	c.set(0, onnx.Int64, []expr{})
	if x := c.in[0]; x.ranked() {
		c.follow([]expr{product(x.shape)})
	}
}

// inferConstant knows all of the value. Strings and tensors are held as they are; sparse tensors
// are refused.
func inferConstant(c *call) {
	t := op.Constant(c.node)
	if t == nil {
		try.Fail("it holds no value; allowed are dense tensors, numbers and strings")
	}
	if len(c.out) > 0 {
		c.out[0] = tensorFact(t)
	}
}

// given is a shape made of the followed elements of f; nil where f is not followed. A rank-1 input
// of known length gives a shape of known rank. Elements that may be negative become unknown sizes;
// a certain negative one is an error.
func (c *call) given(f *fact) []expr {
	if f.data != nil {
		out := make([]expr, len(f.data))
		for i, e := range f.data {
			if v, ok := e.value(); ok && v < 0 {
				try.Fail("size %d of axis %d is negative", v, i)
			}
			out[i] = c.size(e)
		}
		return out
	}
	if len(f.shape) == 1 {
		if n, ok := f.shape[0].value(); ok && n <= onnx.MaxRank {
			return c.unknownSizes(n)
		}
	}
	return nil
}

// size is e as the size of an axis: an expression that might be negative is an unknown size.
func (c *call) size(e expr) expr {
	if low, ok := e.atLeast(); ok && low >= 0 {
		return e
	}
	return c.inf.unknownSize()
}

// inferConstantOfShape follows the repeated element of a small result. Without the attribute value
// the elements are float32 zeros, which are followed by no rule.
func inferConstantOfShape(c *call) {
	v := onnx.Scalar[float32](0)
	if a, ok := c.node.Attr("value"); ok && a.Tensor != nil {
		v = a.Tensor
	}
	shape := c.given(c.in[0])
	c.set(0, v.DType, shape)
	if e := elements(v); len(e) == 1 && shape != nil {
		if n, ok := product(shape).value(); ok && n <= maxFollowed {
			c.follow(slices.Repeat(e, n))
		}
	}
}

// inferRange: ceil((limit - start) / delta) elements, and none where that is negative; open unless
// delta is known. A negative delta counts down: both the span and delta change their signs. Values
// of floats are not followed, so that their ranges are of unknown size.
func inferRange(c *call) {
	d := try.Get(sameType(c.in...))
	c.set(0, d, []expr{c.inf.unknownSize()})
	start, limit, delta := c.in[0].data, c.in[1].data, c.in[2].data
	if len(start) != 1 || len(limit) != 1 || len(delta) != 1 {
		return
	}
	step, ok := delta[0].value()
	if !ok || step == 0 {
		return
	}
	span := limit[0].minus(start[0])
	if step < 0 {
		span, step = constant(0).minus(span), -step
	}
	if v, ok := span.value(); ok && v < 0 {
		c.set(0, d, []expr{constant(0)})
		return
	}
	c.set(0, d, []expr{c.size(span.plus(constant(step - 1)).floorOver(step))})
}

// inferNonZero: [rank, n], where only a run tells n. Each column is the index of one element that
// is not 0.
func inferNonZero(c *call) {
	rank := c.inf.unknownSize()
	if x := c.in[0]; x.ranked() {
		rank = constant(max(1, len(x.shape))) // a scalar is a vector of one to the engines
	}
	c.set(0, onnx.Int64, []expr{rank, c.inf.unknownSize()})
}

// inferLike: the input's shape, and its type unless dtype says another. It serves EyeLike,
// Bernoulli and the random operators that end in Like.
func inferLike(c *call) {
	d := c.arg(0).dtype
	if t := c.attrs.Int("dtype"); t != 0 {
		d = onnx.DTypeOf(int64(t))
	}
	c.set(0, d, c.arg(0).shape)
}

// inferOneHot: the shape of the indices, with the depth put in at axis. The axis counts in the
// result, of rank r + 1, so that axis r, or -1, appends the depth.
func inferOneHot(c *call) {
	x := c.in[0]
	c.set(0, c.in[2].dtype, nil)
	if !x.ranked() {
		return
	}
	a := try.Get(axis(c.attrs.Int("axis"), len(x.shape)+1))
	c.set(0, c.in[2].dtype, slices.Insert(slices.Clone(x.shape), a, c.number(1)))
}
