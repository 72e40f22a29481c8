package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Reductions over axes, arg-reductions and cumulative operators.
var reductionRules = merge(map[string]rule{
	"ArgMax": inferArgReduce, "ArgMin": inferArgReduce, "TopK": inferTopK, "CumSum": typeFrom(0),
	"CumProd": typeFrom(0),
	// Each row is [batch, class, box] of a box that is chosen; only a run tells the number of rows.
	"NonMaxSuppression": func(c *call) {
		c.set(0, onnx.Int64, []expr{c.inf.unknownSize(), constant(3)})
	}}, each(shaped(inferReduce),
	"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
	"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
))

// inferReduce leaves the reduced axes out, or gives them size 1 with keepdims. Without axes all are
// reduced, or none where noop_with_empty_axes is set. The sum or product of a vector whose elements
// are followed, such as a shape, is followed too. Axes moved from an attribute to input 1 in
// operator set 13 for ReduceSum, and in 18 for the others. Axes that only a run tells leave sizes
// open; without keepdims their number still tells the rank.
func inferReduce(c *call, x *fact) []expr {
	keep := c.attrs.Int("keepdims") != 0
	since := 18 // operator set from which on axes are an input
	if c.node.Op == "ReduceSum" {
		since = 13
	}
	axes, given, known := c.argOrAttr("axes", 1, since)
	if !known {
		if keep {
			return c.unknownSizes(len(x.shape))
		} else if s := c.arg(1).shape; len(s) == 1 {
			if n, ok := s[0].value(); ok && n > 0 && n <= len(x.shape) {
				return c.unknownSizes(len(x.shape) - n)
			}
		}
		return nil
	}
	if (!given || len(axes) == 0) && c.attrs.Int("noop_with_empty_axes") != 0 {
		return x.shape
	}
	over := try.Get(axesOf(axes, len(x.shape)))
	out := []expr{}
	for i, e := range x.shape {
		switch {
		case !over[i] && len(axes) > 0:
			out = append(out, e)
		case keep:
			out = append(out, constant(1))
		}
	}
	if x.data != nil && len(x.shape) == 1 && (len(axes) == 0 || over[0]) {
		switch c.node.Op {
		case "ReduceProd":
			c.follow([]expr{product(x.data)})
		case "ReduceSum":
			s := constant(0)
			for _, e := range x.data {
				s = s.plus(e)
			}
			c.follow([]expr{s})
		}
	}
	return out
}

// inferArgReduce has int64 indices in the place of one axis, which keepdims leaves at size 1. The
// indices count along the reduced axis alone, from 0.
func inferArgReduce(c *call) {
	x := c.in[0]
	c.set(0, onnx.Int64, nil)
	if !x.ranked() {
		return
	}
	a := try.Get(axis(c.attrs.Int("axis"), len(x.shape)))
	out := []expr{}
	for i, e := range x.shape {
		switch {
		case i != a:
			out = append(out, e)
		case c.attrs.Int("keepdims") != 0:
			out = append(out, constant(1))
		}
	}
	c.set(0, onnx.Int64, out)
}

// inferTopK gives values and int64 indices, k of them along one axis. k is an attribute before
// operator set 10 and an operand from then on. A k larger than the axis is an error, as it is to
// the runtimes; k = 0 gives an empty result.
func inferTopK(c *call) {
	x := c.in[0]
	c.set(0, x.dtype, nil)
	c.set(1, onnx.Int64, nil)
	if !x.ranked() {
		return
	}
	a := try.Get(axis(c.attrs.Int("axis"), len(x.shape)))
	k := c.inf.unknownSize()
	if c.opset < 10 {
		k = constant(c.attrs.Int("k"))
	} else if d := c.arg(1).data; len(d) == 1 {
		k = d[0]
	}
	if kv, ok := k.value(); ok {
		if n, ok := x.shape[a].value(); ok && (kv < 0 || kv > n) {
			try.Fail("k is %d on an axis of size %d", kv, n)
		}
	}
	c.same(0, x)
	c.out[0].shape[a] = k
	c.set(1, onnx.Int64, c.out[0].shape)
}
