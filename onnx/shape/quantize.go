package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Quantised values.
var quantizationRules = map[string]rule{
	"QuantizeLinear": inferQuantize, "DequantizeLinear": inferDequantize,
	"DynamicQuantizeLinear": inferDynamicQuantize,
}

// checkScale holds the scale and zero point against the value: one for all, one for each position
// on the axis, or one for each block of positions on it. Before operator set 13 there is no axis,
// and before 21 there are no blocks. A scale of blocks has the value's rank and ceil(d /
// block_size) positions on its axis of size d.
func (c *call) checkScale() {
	x, s := c.in[0].shape, c.arg(1).shape
	if s == nil {
		return
	}
	n, known := count(s)
	if z, zeros := count(c.arg(2).shape); known && zeros && z != n {
		try.Fail("the scale has %d elements and the zero point %d", n, z)
	}
	at, block := 1, 0
	if c.opset >= 13 {
		at = c.attrs.Int("axis")
	}
	if c.opset >= 21 {
		block = c.attrs.Int("block_size")
	}
	switch {
	// One scale for all fits any value; a scale that may be of one element is not refused.
	case x == nil || block < 0 || block == 0 && (len(s) == 0 || len(s) == 1 && (!known || n == 1)):
	case block == 0:
		if len(s) != 1 {
			try.Fail("the scale is of shape %s; a number or a vector is needed", c.inf.shapeText(s))
		}
		agree(s[0], x[try.Get(axis(at, len(x)))], "the scale and axis %d", at)
	case len(s) != len(x):
		try.Fail("scales of blocks are of rank %d and the value of rank %d", len(s), len(x))
	default:
		at = try.Get(axis(at, len(x)))
		for i := range x {
			// The last block may be shorter, for which the quotient is rounded up.
			if d, known := x[i].value(); i == at && known {
				agree(s[i], constant((d+block-1)/block), "scales and blocks of %d on axis %d",
					block, i)
			} else if i != at {
				agree(s[i], x[i], "scales and positions of axis %d", i)
			}
		}
	}
}

// inferDequantize: the result is of the scale's type, x = (q - zero point) scale.
func inferDequantize(c *call) {
	c.checkScale()
	d := c.arg(1).dtype
	if t := c.attrs.Int("output_dtype"); t != 0 { // from operator set 23 on
		d = onnx.DTypeOf(int64(t))
	}
	c.set(0, d, c.arg(0).shape)
}

// inferQuantize: the zero point tells the type, else output_dtype, else it is uint8.
func inferQuantize(c *call) {
	c.checkScale()
	d := c.arg(2).dtype
	if !c.has(2) {
		d = onnx.Uint8
		if t := c.attrs.Int("output_dtype"); t != 0 {
			d = onnx.DTypeOf(int64(t))
		}
	}
	c.set(0, d, c.arg(0).shape)
}

// inferDynamicQuantize: values as uint8, with a float32 scale and a uint8 zero point that are
// scalars.
func inferDynamicQuantize(c *call) {
	c.set(0, onnx.Uint8, c.arg(0).shape)
	c.set(1, onnx.Float32, []expr{})
	c.set(2, onnx.Uint8, []expr{})
}
