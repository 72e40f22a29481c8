package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Convolutions, poolings and resampling over the spatial axes of [N, C, D1, ..., Dn].
var convolutionRules = map[string]rule{
	"Conv": inferConv, "ConvInteger": inferConv, "QLinearConv": inferConv,
	"ConvTranspose": inferConvTranspose,
	"MaxPool":       inferPool, "AveragePool": inferPool, "LpPool": inferPool,
	"GlobalAveragePool": inferGlobalPool,
	"GlobalMaxPool":     inferGlobalPool, "GlobalLpPool": inferGlobalPool,
	"AffineGrid": inferAffineGrid,
	"Col2Im":     inferCol2Im, "MaxUnpool": shaped(inferMaxUnpool), "Resize": shaped(inferResize),
	"Upsample": shaped(inferResize), "GridSample": shaped(inferGridSample),
	"MaxRoiPool": shaped(inferRoiPool), "RoiAlign": shaped(inferRoiAlign),
	"DeformConv": shaped(inferDeformConv),
}

// output is the size of axis i after the window went over an input of size in. It is floor((in +
// pads - extent) / stride) + 1, or ceil(in / stride) where auto_pad is SAME. Axis i counts the
// spatial axes, and is axis i + 2 of the value, as errors name it. The extent of a kernel k with
// dilation d is (k - 1) d + 1. With ceil_mode the quotient is rounded up, as PyTorch's pooling
// does.
func output(w op.Window, in expr, i int) expr {
	switch w.AutoPad {
	case "SAME_UPPER", "SAME_LOWER":
		return in.plus(constant(w.Strides[i] - 1)).floorOver(w.Strides[i])
	// w is a copy: the caller's pads stay as they are.
	case "VALID":
		w.Pads = make([]int, len(w.Pads))
	}
	pad := w.Pads[i] + w.Pads[i+len(w.Kernel)]
	span := in.plus(constant(pad - w.Extent(i)))
	// span is the number of places to the right that the window can move, at least 0 for one whole
	// window.
	least := 0
	if w.CeilMode { // one window, of which the end is beyond the padding
		least = 1 - w.Strides[i]
	}
	if v, ok := span.value(); ok && int(v) < least {
		try.Fail("a kernel over %d positions on axis %d of size %s padded by %d",
			w.Extent(i), i+2, in, pad)
	}
	if w.CeilMode {
		out := span.plus(constant(w.Strides[i] - 1)).floorOver(w.Strides[i]).plus(constant(1))
		// A last window that would begin in the padding after the end is left out.
		if o, ok := out.value(); ok {
			// The begin of the last window counts from the padded begin, and the products may be
			// beyond 32 bits.
			if v, known := in.value(); known &&
				int64(o-1)*int64(w.Strides[i]) >= int64(v)+int64(w.Pads[i]) {
				out = constant(o - 1)
			}
		}
		return out
	}
	return span.floorOver(w.Strides[i]).plus(constant(1))
}

// spatial is the known spatial shape of a weight [M, C/group, k1, ..., kn]; nil where it is not
// known.
func spatial(w []expr) []int {
	if len(w) < 3 {
		return nil
	}
	out := make([]int, len(w)-2)
	for i := range out {
		v, ok := w[i+2].value()
		if !ok {
			return nil
		}
		out[i] = v
	}
	return out
}

// inferConv: input [N, C, D1, ...] and weight [M, C/group, k1, ...] give [N, M, O1, ...]. Channels
// C are those of all groups, of which the weight holds one group's. Where the kernel's sizes are
// not known the spatial sizes are open, and rank, N and M still follow.
func inferConv(c *call) {
	// ConvInteger has zero points where Conv has its bias, and sums in int32. QLinearConv has
	// scales and zero points between its tensors; y_zero_point, input 7, is of the result's type.
	x, weight, d, bias := 0, 1, c.arg(0).dtype, 2
	switch c.node.Op {
	case "ConvInteger":
		d, bias = onnx.Int32, -1
	case "QLinearConv":
		weight, d, bias = 3, c.arg(7).dtype, 8
	default:
		try.Get(sameType(c.in...))
	}
	c.set(0, d, nil)
	in, w := c.in[x].shape, c.in[weight].shape
	if in == nil {
		return
	}
	spatialRank(in)
	out := c.unknownSizes(len(in))
	// The batch is known even where the weight is not.
	out[0] = in[0]
	c.set(0, d, out)
	if w == nil {
		return
	}
	if len(w) != len(in) {
		try.Fail("input and weight are of rank %d and %d; they must be the same",
			len(in), len(w))
	}
	group := c.attrs.Int("group")
	if group < 1 || group > onnx.MaxElements {
		try.Fail("group is %d; at least 1 is allowed", group)
	}
	agree(in[1], w[1].times(constant(group)),
		"channels of the input and of the weight times %d groups", group)
	// Each group gives M / group of the output channels.
	if m, ok := w[0].value(); ok && m%group != 0 {
		try.Fail("%d output channels cannot be split in %d groups", m, group)
	}
	if b := c.arg(bias).shape; bias >= 0 && b != nil {
		if len(b) != 1 {
			try.Fail("the bias is of rank %d; it must be a vector", len(b))
		}
		agree(b[0], w[0], "bias and output channels")
	}
	out[1] = w[0]
	if kernel := spatial(w); kernel != nil {
		win := try.Get(op.WindowOf(c.attrs, len(in)-2, kernel))
		for i := range kernel {
			out[i+2] = output(win, in[i+2], i)
		}
	}
	c.set(0, d, out)
}

// inferConvTranspose: weight [C, M/group, k1, ...]; output size (in-1) stride + output_padding +
// extent - pads. auto_pad SAME gives in · stride. Where output_shape is given it is the result, and
// the engines work out the pads from it.
func inferConvTranspose(c *call) {
	d := try.Get(sameType(c.in...))
	c.set(0, d, nil)
	in, w := c.in[0].shape, c.in[1].shape
	if in == nil || w == nil {
		return
	}
	if len(in) < 3 || len(w) != len(in) {
		try.Fail(
			"input and weight are of rank %d and %d; [N, C, D1, ...] and [C, M/group, k1, ...] are needed",
			len(in), len(w))
	}
	agree(in[1], w[0], "channels of input and weight")
	group := c.attrs.Int("group")
	if group < 1 || group > onnx.MaxElements {
		try.Fail("group is %d; at least 1 is allowed", group)
	}
	out := c.unknownSizes(len(in))
	out[0], out[1] = in[0], w[1].times(constant(group))
	n := len(in) - 2
	if kernel := spatial(w); kernel != nil {
		win := try.Get(op.WindowOf(c.attrs, n, kernel))
		extra := c.attrs.Ints("output_padding")
		if extra == nil {
			extra = make([]int, n)
		}
		shape := c.attrs.Ints("output_shape")
		if len(extra) != n || shape != nil && len(shape) != n {
			try.Fail("output_padding %v and output_shape %v for %d spatial axes",
				extra, shape, n)
		}
		for i := range n {
			switch {
			case shape != nil:
				out[i+2] = constant(shape[i])
			case win.AutoPad == "SAME_UPPER" || win.AutoPad == "SAME_LOWER":
				out[i+2] = in[i+2].times(constant(win.Strides[i]))
			default:
				if win.AutoPad == "VALID" {
					win.Pads = make([]int, 2*n)
				}
				out[i+2] = in[i+2].minus(constant(1)).times(constant(win.Strides[i])).
					plus(constant(extra[i])).
					plus(constant(win.Extent(i) - win.Pads[i] - win.Pads[i+n]))
			}
		}
	}
	c.set(0, d, out)
}
