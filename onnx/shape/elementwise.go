package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Elementwise operators, with broadcasting where they have several operands.
var elementwiseRules = merge(map[string]rule{
	// The exponent may be of another type than the base, whose type the result has.
	"Pow": func(c *call) {
		c.set(0, c.in[0].dtype, try.Get(c.broadcast(c.in[0].shape, c.in[1].shape)))
	},
	"PRelu": func(c *call) {
		c.same(0, c.in[0])
		if c.opset >= 7 { // before it a vector of slopes is of axis 1
			c.broadcastTo(c.in[0].shape, 1)
		}
	},
	"Where": inferWhere, "Cast": inferCast, "CastLike": typeFrom(1),
}, each(func(c *call) { c.set(0, onnx.Bool, c.arg(0).shape) }, "IsNaN", "IsInf"), each(inferUnary,
	"Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Celu", "Clip",
	"Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
	"LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink",
	"Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
	"ThresholdedRelu"), each(inferBinary,
	"Add", "Sub", "Mul", "Div", "Mod", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr",
	"BitwiseXor", "BitShift",
), each(inferComparison, "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
	each(inferVariadic, "Max", "Min", "Mean", "Sum"))

// inferUnary keeps type and shape, and follows the elements of Identity, Neg and Not. Other
// functions of a followed element have no polynomial, so that their results are unknown.
func inferUnary(c *call) {
	x := c.arg(0)
	c.same(0, x)
	switch c.node.Op {
	case "Identity":
		c.follow(x.data)
		c.out[0].tensor = x.tensor
	case "Neg":
		c.follow(mapData(x.data, func(e expr) expr { return constant(0).minus(e) }))
	case "Not":
		c.follow(mapData(x.data, func(e expr) expr {
			if v, ok := e.value(); ok {
				return constant(1 - v)
			}
			return nil
		}))
	}
}

// mapData applies f to every element; elements that are not followed stay so. f may return nil for
// an element that it cannot follow.
func mapData(d []expr, f func(expr) expr) []expr {
	if d == nil {
		return nil
	}
	out := make([]expr, len(d))
	for i, e := range d {
		out[i] = f(e)
	}
	return out
}

// inferBinary broadcasts; opset 6 and below, with its axis attribute, is not followed. Sums,
// differences and products of symbols are polynomials again. A quotient is followed where the
// division is exact, or the dividend is certainly not negative.
func inferBinary(c *call) {
	d := try.Get(sameType(c.in[0], c.in[1]))
	shape := try.Get(c.broadcast(c.in[0].shape, c.in[1].shape))
	c.set(0, d, shape)
	c.followBinary(func(a, b expr) expr {
		x, xok := a.value()
		y, yok := b.value()
		both := xok && yok
		switch c.node.Op {
		case "Add":
			return a.plus(b)
		case "Sub":
			return a.minus(b)
		case "Mul":
			return a.times(b)
		case "Div":
			if q, ok := a.over(b); ok {
				return q
			}
			// Integer division truncates, which is the floor where both are not negative. floor and
			// truncation differ below 0, where no quotient is followed.
			if low, ok := a.atLeast(); ok && low >= 0 && yok && y > 0 {
				return a.floorOver(y)
			}
		// Signs of the remainder depend on fmod below 0, and agree for x >= 0 and y > 0.
		case "Mod":
			if both && x >= 0 && y > 0 {
				return constant(x % y)
			}
		// Elements of booleans are 0 and 1, so that bitwise and logical results agree.
		case "And":
			if both {
				return constant(x & y)
			}
		case "Or":
			if both {
				return constant(x | y)
			}
		}
		return nil
	})
}

// followBinary follows integer elements of two operands of which one may be repeated: equal counts,
// or one element. A nil result of f is an element of which nothing is known. Values of rank 2 and
// more are left: shapes are vectors and their elements scalars.
func (c *call) followBinary(f func(a, b expr) expr) {
	a, b := c.in[0], c.in[1]
	if a.data == nil || b.data == nil || len(a.shape) > 1 || len(b.shape) > 1 {
		return
	}
	n := max(len(a.data), len(b.data))
	if len(a.data) == 0 || len(b.data) == 0 || len(a.data) != n && len(a.data) != 1 ||
		len(b.data) != n && len(b.data) != 1 {
		return
	}
	out := make([]expr, n)
	for i := range out {
		out[i] = f(a.data[min(i, len(a.data)-1)], b.data[min(i, len(b.data)-1)])
	}
	c.follow(out)
}

// inferComparison: booleans of the broadcast shape. Elements are followed where both are known, and
// of Equal also where the sign of their difference is. The result feeds Where and If, by which
// exporters choose among shapes.
func inferComparison(c *call) {
	try.Get(sameType(c.in[0], c.in[1]))
	shape := try.Get(c.broadcast(c.in[0].shape, c.in[1].shape))
	c.set(0, onnx.Bool, shape)
	c.followBinary(func(a, b expr) expr {
		x, xok := a.value()
		y, yok := b.value()
		if c.node.Op == "Equal" && !(xok && yok) {
			// Sizes are not negative, so that none equals the -1 of Expand and Reshape.
			diff := a.minus(b)
			if low, ok := diff.atLeast(); ok && low > 0 {
				return constant(0)
			}
			if low, ok := b.minus(a).atLeast(); ok && low > 0 {
				return constant(0)
			}
			if a.equal(b) {
				return constant(1)
			}
			return nil
		}
		if !xok || !yok {
			return nil
		}
		switch c.node.Op {
		case "Equal":
			return constant(boolInt(x == y))
		case "Greater":
			return constant(boolInt(x > y))
		case "GreaterOrEqual":
			return constant(boolInt(x >= y))
		case "Less":
			return constant(boolInt(x < y))
		}
		return constant(boolInt(x <= y))
	})
}

// inferVariadic broadcasts all inputs, and follows the larger or smaller of two where the sign of
// their difference is known. With operands of three or more nothing is followed.
func inferVariadic(c *call) {
	d := try.Get(sameType(c.in...))
	shapes := make([][]expr, len(c.in))
	for i := range c.in {
		shapes[i] = c.arg(i).shape
	}
	shape := try.Get(c.broadcast(shapes...))
	c.set(0, d, shape)
	if len(c.in) == 2 && (c.node.Op == "Max" || c.node.Op == "Min") {
		c.followBinary(func(a, b expr) expr {
			// After the exchange a is the larger one, if either difference has a certain sign.
			if low, ok := a.minus(b).atLeast(); !ok || low < 0 {
				a, b = b, a
			}
			if low, ok := a.minus(b).atLeast(); !ok || low < 0 {
				return nil
			}
			if c.node.Op == "Max" {
				return a
			}
			return b
		})
	}
}

// inferWhere: all three operands are broadcast. Elements are followed where the condition is known,
// or where either choice is the same. Shapes with a -1 are replaced in this way by exporters:
// Where(Equal(shape, -1), ones, shape).
func inferWhere(c *call) {
	d := try.Get(sameType(c.in[1], c.in[2]))
	if t := c.in[0].dtype; t != onnx.Bool && t != onnx.Undefined {
		try.Fail("the condition is of type %v; it must be bool", t)
	}
	shape := try.Get(c.broadcast(c.in[0].shape, c.in[1].shape, c.in[2].shape))
	c.set(0, d, shape)
	p, x, y := c.in[0].data, c.in[1].data, c.in[2].data
	n := max(len(p), len(x), len(y))
	if len(shape) > 1 || min(len(p), len(x), len(y)) == 0 {
		return
	}
	pick := func(d []expr, i int) expr {
		if len(d) == 1 {
			return d[0]
		}
		return d[i]
	}
	out := make([]expr, n)
	for i := range out {
		switch v, ok := pick(p, i).value(); {
		case ok && v != 0:
			out[i] = pick(x, i)
		case ok:
			out[i] = pick(y, i)
		case pick(x, i).equal(pick(y, i)):
			out[i] = pick(x, i)
		}
	}
	c.follow(out)
}

// inferCast follows elements into whole numbers alone: sizes are computed in no other type.
func inferCast(c *call) {
	to := c.attrs.DType("to")
	if !to.Known() {
		try.Fail("attribute to is %d, which is no element type", to)
	}
	c.set(0, to, c.in[0].shape)
	if to == onnx.Int64 || to == onnx.Int32 {
		c.follow(c.in[0].data)
	}
}

// boolInt is the element 1 or 0 by which booleans are followed.
func boolInt(v bool) int {
	if v {
		return 1
	}
	return 0
}
