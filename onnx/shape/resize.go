package shape

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// inferResize: sizes are given, or floor(size x scale). Upsample has only scales (an attribute at
// opset 7). Other policies of the aspect ratio take one scale for all axes from the sizes, and stay
// open here.
func inferResize(c *call, x *fact) []expr {
	out := append([]expr{}, x.shape...)
	axes := upTo(len(out))
	if c.opset >= 18 {
		if c.attrs.Has("axes") {
			axes = c.attrs.Ints("axes")
		}
		try.Get(axesOf(axes, len(out)))
	}
	sizes, scales := c.resizing(len(axes))
	policy := c.attrs.Str("keep_aspect_ratio_policy") // there is none before operator set 18
	stretch := policy == "" || policy == "stretch"
	for i, a := range axes {
		a, _ = axis(a, len(out))
		switch {
		case sizes != nil && stretch:
			out[a] = sizes[i]
		case scales != nil:
			out[a] = c.scaled(out[a], scales[i], a)
		default:
			out[a] = c.inf.unknownSize()
		}
	}
	return out
}

// resizing reads the sizes, or the scales where there are none, of n axes; nil where they are not
// known. From operator set 11 on Resize has roi as input 1, scales as 2 and sizes as 3.
func (c *call) resizing(n int) (sizes []expr, scales []float32) {
	scaleAt := 1
	if c.node.Op == "Resize" && c.opset >= 11 {
		scaleAt = 2
		if c.filled(2) == yes && c.filled(3) == yes {
			try.Fail("both scales and sizes are given; one of them is needed")
		}
		if c.filled(2) == no && c.filled(3) == no {
			try.Fail("neither scales nor sizes are given; one of them is needed")
		}
		if c.has(3) {
			if sizes = c.given(c.in[3]); len(sizes) == 0 {
				sizes = c.unknownSizes(n)
			}
			if len(sizes) != n {
				try.Fail("%d sizes for %d axes", len(sizes), n)
			}
			return sizes, nil
		}
	}
	if f, ok := c.node.Attr("scales"); ok && c.node.Op == "Upsample" {
		scales = f.Floats
	} else if t := c.arg(scaleAt).constant(); t != nil {
		scales = t.F32()
	}
	if scales != nil && len(scales) != n {
		try.Fail("%d scales for %d axes", len(scales), n)
	}
	return nil, scales
}

// Answers of [call.filled]. perhaps is of an operand whose number of elements is open.
const (
	no = iota
	perhaps
	yes
)

// filled reports whether an operand is given and has elements. Exporters write an empty tensor for
// an operand that they leave out, in place of an empty name.
func (c *call) filled(i int) int {
	n, known := count(c.arg(i).shape)
	switch {
	case !c.has(i) || known && n == 0:
		return no
	case !known:
		return perhaps
	}
	return yes
}

// scaled returns floor(size x scale) of an axis, in float32 as the engines. A whole scale keeps a
// symbol; of a fraction no polynomial follows.
func (c *call) scaled(size expr, scale float32, axis int) expr {
	// A NaN fails the comparison and is refused.
	if !(scale > 0) || scale > onnx.MaxElements {
		try.Fail("the scale of axis %d is %v", axis, scale)
	}
	// The product is bounded in float64, before it becomes an int.
	v, known := size.value()
	if known && float64(v)*float64(scale) > onnx.MaxElements {
		try.Fail("scale %v makes axis %d of size %d larger than %d", scale, axis, v,
			onnx.MaxElements)
	}
	switch whole := int(scale); {
	case float32(whole) == scale:
		return size.times(constant(whole))
	case known:
		return constant(int(float32(v) * scale))
	}
	return c.inf.unknownSize()
}

// inferGridSample: input [N, C, D1, ...], grid [N, O1, ..., n] -> [N, C, O1, ...]. The last axis of
// the grid holds coordinates, and is not in the result.
func inferGridSample(c *call, x *fact) []expr {
	grid := c.in[1].shape
	if grid == nil {
		return nil
	}
	if len(x.shape) != len(grid) || len(x.shape) < 3 {
		try.Fail("input and grid are of rank %d and %d; they must be the same, 3 or more",
			len(x.shape), len(grid))
	}
	n, err := meet(x.shape[0], grid[0])
	if err != nil {
		try.Fail("batches of input and grid: %w", err)
	}
	return append([]expr{n, x.shape[1]}, grid[1:len(grid)-1]...)
}

// inferAffineGrid: a size [N, C, D1, ..., Dn] gives a grid [N, D1, ..., Dn, n]. It takes theta [N,
// n, n+1] as its first input, of which only the type is read.
func inferAffineGrid(c *call) {
	size := c.given(c.in[1])
	// The type is known whatever the size is.
	c.set(0, c.in[0].dtype, nil)
	if len(size) < 3 {
		return
	}
	out := append([]expr{size[0]}, size[2:]...)
	c.set(0, c.in[0].dtype, append(out, constant(len(size)-2)))
}

// inferCol2Im: [N, C·block, L] gives [N, C, image]. block is the product of block_shape, input 2,
// by which the channels are divided.
func inferCol2Im(c *call) {
	x := c.in[0]
	c.set(0, x.dtype, nil)
	image := c.given(c.in[1])
	if image == nil || len(x.shape) != 3 {
		return
	}
	channels := c.inf.unknownSize()
	block := c.given(c.in[2])
	if q, ok := x.shape[1].over(product(block)); ok && block != nil {
		channels = q
	}
	c.set(0, x.dtype, append([]expr{x.shape[0], channels}, image...))
}

// inferDeformConv: the offset [N, ..., O1, ..., On] states the positions of the output [N, M, O1,
// ..., On]. The weight is [M, C/group, k1, ..., kn], and the mask and bias are not looked at.
func inferDeformConv(c *call, x *fact) []expr {
	w, offset := c.in[1], c.in[2]
	if len(x.shape) < 3 || len(w.shape) != len(x.shape) || len(offset.shape) != len(x.shape) {
		return nil
	}
	out := append([]expr{x.shape[0], w.shape[0]}, offset.shape[2:]...)
	group, parts := c.attrs.Int("group"), c.attrs.Int("offset_group")
	if group < 1 || parts < 1 || group > onnx.MaxElements || parts > onnx.MaxElements {
		try.Fail("group is %d and offset_group %d; at least 1 is allowed", group, parts)
	}
	// A filter sees the channels of its group, C/group, which the weight's second axis counts.
	agree(x.shape[1], w.shape[1].times(constant(group)),
		"channels of the input and of the weight times %d groups", group)
	if kernel := spatial(w.shape); kernel != nil {
		win := try.Get(op.WindowOf(c.attrs, len(kernel), kernel))
		for i := range kernel {
			agree(out[i+2], output(win, x.shape[i+2], i), "positions of the offset and of the window")
		}
	}
	return out
}
