package grad

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(inFloat32(vjpReduce), "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
		"ReduceLogSumExp", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceProd")
	// Sums from the other end. y_i is the sum of x_j for j up to i, so that x̄_j is the sum of ȳ_i
	// from j on.
	register(func(c *call) []string {
		return []string{c.op("CumSum", []string{c.g(), c.in(1)},
			onnx.IntAttr("exclusive", c.attrs.Int("exclusive")),
			onnx.IntAttr("reverse", 1-c.attrs.Int("reverse")))}
	}, "CumSum")
}

// reduction is a reducing node's axes: constant ones, or the value that holds them.
type reduction struct {
	axes []int  // of the input, not negative
	at   string // where they are not constant
	none bool   // nothing is reduced: no axes, and the node says that this means none
}

// reduction reads a node's axes from its attribute or its second input. None are all of the axes,
// unless noop_with_empty_axes is set. An axes operand that the graph works out is handed on to the
// gradient's nodes.
func (c *call) reduction() reduction {
	x := c.in(0)
	axes := c.attrs.Ints("axes")
	if in := c.in(1); in != "" {
		d, ok := c.constInts(in)
		if !ok {
			return reduction{at: in}
		}
		axes = d
	}
	if len(axes) == 0 {
		if c.attrs.Int("noop_with_empty_axes") == 1 {
			return reduction{none: true}
		}
		return reduction{axes: span(0, c.rank(x))}
	}
	return reduction{axes: c.axes(x, axes...)}
}

// restore gives a reduced value back the axes that keepdims=0 took, with size 1.
func (c *call) restore(v string, r reduction) string {
	if r.none || c.attrs.Int("keepdims") == 1 {
		return v
	}
	if r.at != "" {
		return c.op("Unsqueeze", []string{v, r.at})
	}
	if len(r.axes) == 0 {
		return v
	}
	return c.unsqueeze(v, r.axes...)
}

// again sums v, of the input's shape, over the same axes, keeping them.
func (c *call) again(v string, r reduction) string {
	if r.none {
		return v
	}
	if r.at != "" {
		return c.op("ReduceSum", []string{v, r.at}, onnx.IntAttr("keepdims", 1),
			onnx.IntAttr("noop_with_empty_axes", c.attrs.Int("noop_with_empty_axes")))
	}
	return c.sum(v, true, r.axes...)
}

// vjpReduce: with ȳ and y spread over the reduced axes, x̄ is ȳ for a sum and ȳ/n for a mean. It is
// ȳ e^(x - y) for a log-sum-exp and ȳ e^-y for the logarithm of a sum. It is ȳ sign x for L1,
// ȳ x/y for L2 and 2 x ȳ for a sum of squares. A maximum shares ȳ equally among ties, so that the
// cotangents of a group add up to ȳ. Values are not clipped: e^(x - y) is at most 1, as y is at
// least the largest x.
func vjpReduce(c *call) []string {
	x := c.in(0)
	r := c.reduction()
	g, y := c.restore(c.g(), r), c.restore(c.out(0), r)
	var gx string
	switch c.node.Op {
	case "ReduceSum":
		gx = c.op("Expand", []string{g, c.shapeOf(x)})
	case "ReduceMean":
		var n string
		if r.at == "" && !r.none {
			n = c.size(x, r.axes)
		} else {
			// Axes are not known here: a sum of ones over them counts the elements.
			n = c.again(c.filled(x, 1), r)
		}
		gx = c.op("Expand", []string{c.div(g, n), c.shapeOf(x)})
	case "ReduceMax", "ReduceMin": // shared equally among ties
		attains := c.mask(c.op("Equal", []string{x, y}), x)
		gx = c.mul(c.div(g, c.again(attains, r)), attains)
	case "ReduceLogSumExp":
		gx = c.mul(g, c.un("Exp", c.sub(x, y)))
	case "ReduceLogSum": // y = ln s
		gx = c.op("Expand", []string{c.mul(g, c.un("Exp", c.un("Neg", y))), c.shapeOf(x)})
	// The slope at 0 is set to 0, the sign's own value there.
	case "ReduceL1":
		gx = c.mul(g, c.un("Sign", x))
	case "ReduceL2": // the slope at the origin is set to 0
		zero := c.op("Equal", []string{y, c.num(0, x)})
		gx = c.mul(x, c.where(zero, c.num(0, x), c.div(g, c.where(zero, c.num(1, x), y))))
	case "ReduceSumSquare":
		gx = c.mul(g, c.scale(x, 2, x))
	case "ReduceProd":
		if c.twice {
			try.Do(errTwice)
		}
		gx = c.vjpProd(x, g, r)
	default:
		try.Fail("no rule")
	}
	return []string{gx}
}

// vjpProd is ȳ times the product of the other elements, also where one or more of them are 0. With
// one 0 among the factors only that factor has a slope, the product of the rest. With two or more
// no factor has one.
func (c *call) vjpProd(x, g string, r reduction) string {
	zero := c.op("Equal", []string{x, c.num(0, x)})
	filled := c.where(zero, c.num(1, x), x)
	in := append([]string{filled}, c.node.Inputs[1:]...)
	// product of the elements that are not 0
	rest := c.restore(c.op("ReduceProd", in, c.node.Attrs...), r)
	zeros := c.again(c.mask(zero, x), r)
	one := c.mask(c.op("Equal", []string{zeros, c.num(1, x)}), x)
	none := c.mask(c.op("Equal", []string{zeros, c.num(0, x)}), x)
	others := c.where(zero, c.mul(one, rest), c.mul(none, c.div(rest, filled)))
	return c.mul(g, others)
}
