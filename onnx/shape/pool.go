package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// inferPool has the spatial axes by the window's equation, for the values and for MaxPool's int64
// indices. Only MaxPool has the second output, and a node without it skips it. Its indices count in
// the flattened input and have the shape of the values.
func inferPool(c *call) {
	in := c.in[0].shape
	c.set(0, c.in[0].dtype, nil)
	c.set(1, onnx.Int64, nil)
	if in == nil {
		return
	}
	spatialRank(in)
	win := try.Get(op.WindowOf(c.attrs, len(in)-2, nil))
	out := append([]expr{}, in...)
	// Pads are all begins and then all ends, so that i modulo the axes is the axis. A window that
	// lies in the padding alone would have no element, and the ONNX Runtime refuses such pads.
	for i, pad := range win.Pads {
		if size := win.Kernel[i%len(win.Kernel)]; pad >= size {
			try.Fail("a window of %d on axis %d padded by %d; less than the window is needed", size,
				i%len(win.Kernel)+2, pad)
		}
	}
	for i := range win.Kernel {
		out[i+2] = output(win, in[i+2], i)
	}
	c.set(0, c.in[0].dtype, out)
	c.set(1, onnx.Int64, out)
}

// inferGlobalPool makes every spatial axis 1. The result keeps its rank: [N, C, D1, ..., Dn] gives
// [N, C, 1, ..., 1].
func inferGlobalPool(c *call) {
	x := c.in[0]
	if c.same(0, x); x.ranked() {
		spatialRank(x.shape)
	}
	for i := 2; i < len(x.shape); i++ {
		c.out[0].shape[i] = constant(1)
	}
}

// inferMaxUnpool turns the equation of a pooling round: out = (in - 1) stride + kernel - pads.
// Several input sizes have one pooled size, so that output_shape, input 2, goes before the
// equation.
func inferMaxUnpool(c *call, x *fact) []expr {
	in := x.shape
	spatialRank(in)
	if c.has(2) {
		return c.given(c.in[2])
	}
	win := try.Get(op.WindowOf(c.attrs, len(in)-2, nil))
	out := append([]expr{}, in...)
	for i := range win.Kernel {
		out[i+2] = in[i+2].minus(constant(1)).times(constant(win.Strides[i])).
			plus(constant(win.Kernel[i] - win.Pads[i] - win.Pads[i+len(win.Kernel)]))
	}
	return out
}

// inferRoiPool: x [N, C, H, W] and regions [R, 5] -> [R, C, height, width] of pooled_shape.
func inferRoiPool(c *call, x *fact) []expr {
	p := c.attrs.Ints("pooled_shape")
	if len(p) != 2 || len(x.shape) != 4 || len(c.in[1].shape) != 2 {
		return nil
	}
	return []expr{c.in[1].shape[0], x.shape[1], constant(p[0]), constant(p[1])}
}

// inferRoiAlign: x [N, C, H, W] and regions [R, 4] -> [R, C, output_height, output_width]. The
// third input names each region's image, so that N is not in the result.
func inferRoiAlign(c *call, x *fact) []expr {
	if len(x.shape) != 4 || len(c.in[1].shape) != 2 {
		return nil
	}
	height, width := constant(c.attrs.Int("output_height")), constant(c.attrs.Int("output_width"))
	return []expr{c.in[1].shape[0], x.shape[1], height, width}
}
