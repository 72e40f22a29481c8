package grad

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(vjpMaxPool, "MaxPool")
	register(inFloat32(vjpAveragePool), "AveragePool")
	register(inFloat32(func(c *call) []string {
		x := c.in(0)
		r := c.rank(x)
		return []string{c.op("Expand", []string{c.div(c.g(), c.size(x, span(2, r))), c.shapeOf(x)})}
	}), "GlobalAveragePool")
	register(inFloat32(vjpGlobalMaxPool), "GlobalMaxPool")
	register(inFloat32(vjpGlobalLpPool), "GlobalLpPool")
	register(inFloat32(vjpLpPool), "LpPool")
}

// vjpMaxPool sends each cotangent to the element that the node's second output says was the
// largest. Indices count in the whole flattened x, batch and channels among them, so that one
// scatter serves all. With storage_order 1 they would count columns first.
func vjpMaxPool(c *call) []string {
	x, g := c.in(0), c.g()
	if c.attrs.Int("storage_order") != 0 {
		try.Fail("storage_order 1 is not supported")
	}
	at := c.ensureOutput(1, onnx.ValueInfo{DType: onnx.Int64, Shape: c.shape(c.out(0))})
	// Windows may share their largest element, so that cotangents are added where they meet.
	n := c.un("Size", x)
	zeros := c.filledShape(c.reshape(n, c.ints(1)), 0, c.dtype(x))
	flat := c.op("ScatterElements",
		[]string{zeros, c.reshape(at, c.ints(-1)), c.reshape(g, c.ints(-1))},
		onnx.IntAttr("axis", 0), onnx.StrAttr("reduction", "add"))
	return []string{c.reshape(flat, c.shapeOf(x))}
}

// pooled returns the windows of a pooling.
func (c *call) pooled() window {
	x := c.in(0)
	w := c.window(x, "")
	try.Do(c.autoPad(&w, x))
	if c.attrs.Int("ceil_mode") == 1 {
		// Windows may hang over the padded end: the adjoint is the same with that much more
		// padding.
		s := c.shape(x)
		for i := range w.end {
			if !s[2+i].IsKnown() {
				try.Fail("ceil_mode needs the size of spatial axis %d of %q; export the model "+
					"with it fixed", i, x)
			}
		}
	}
	return w
}

// vjpAveragePool spreads each cotangent, divided by the number of elements averaged, over its
// window. Dividing before spreading is right, since the count belongs to the window and not to the
// element.
func vjpAveragePool(c *call) []string {
	x, g := c.in(0), c.g()
	w := c.pooled()
	area := product(w.Kernel)
	count := c.averaged(w, area)
	if count == "" {
		g = c.scale(g, 1/float64(area), x)
	} else {
		g = c.div(g, count)
	}
	return []string{c.overWindows(w, g)}
}

// vjpLpPool: y = (sum |x|^p)^(1/p) has the slope sign(x) (|x|/y)^(p-1) at each element of its
// window, taken for 0 where all is 0. y^(1-p) is the same for all of a window and goes into ȳ
// before it is spread.
func vjpLpPool(c *call) []string {
	x, y, g := c.in(0), c.out(0), c.g()
	w := c.pooled()
	slope := c.un("Sign", x)
	if p := c.attrs.Int("p"); p != 1 {
		norm := c.where(c.op("Equal", []string{y, c.num(0, x)}), c.num(1, x), y)
		g = c.op("Mul", []string{g, c.op("Pow", []string{norm, c.num(float64(1-p), x)})})
		slope = c.mul(slope, c.op("Pow", []string{c.un("Abs", x), c.num(float64(p-1), x)}))
	}
	return []string{c.mul(slope, c.overWindows(w, g))}
}

// overWindows adds each element of g to all that its window covers. It is the adjoint of a sum over
// windows.
func (c *call) overWindows(w window, g string) string {
	x, y := c.in(0), c.out(0)
	if v, ok := c.tile(w, x, y, g); ok {
		return v
	}
	// One channel at a time, all as a batch, through a kernel of ones.
	sx, sy := c.shapeOf(x), c.shapeOf(y)
	spatial := c.ints(span(2, 2+w.dims)...)
	pick := func(s string) string {
		if d, ok := c.constInts(s); ok {
			return c.ints(d[2:]...)
		}
		return c.op("Gather", []string{s, spatial})
	}
	flat := c.reshape(g, c.vec(c.ints(-1, 1), pick(sy)))
	one := append([]onnx.Dim{onnx.Symbolic(""), onnx.Known(1)}, c.shape(x)[2:]...)
	kernel := c.filledShape(c.ints(append([]int{1, 1}, w.Kernel...)...), 1, c.dtype(x))
	like := c.shaped(c.reshape(x, c.vec(c.ints(-1, 1), pick(sx))), c.dtype(x), one)
	w.group = 1
	if c.attrs.Int("ceil_mode") == 1 {
		// The exact reach of the windows is not a function of the padding alone: let spread measure
		// it.
		like = c.shaped(c.un("Identity", like), c.dtype(x), unknownDims(one))
	}
	return c.reshape(c.spread(w, flat, kernel, like), sx)
}

// unknownDims are as many sizes, of which nothing is known.
func unknownDims(s []onnx.Dim) []onnx.Dim {
	out := make([]onnx.Dim, len(s))
	for i := range out {
		out[i] = onnx.Symbolic("")
	}
	return out
}

// averaged is the number of elements under each window, "" where it is the kernel's area
// everywhere. Its shape is [1, 1, O1, ..., On], which is broadcast over batch and channels.
func (c *call) averaged(w window, area int) string {
	ceil := c.attrs.Int("ceil_mode") == 1
	include := c.attrs.Int("count_include_pad") == 1
	if !ceil && (include || !w.padded()) {
		return ""
	}
	s := c.shape(c.in(0))
	// Windows are boxes, so that the count is a product of one count an axis.
	perAxis, shape := make([][]float64, w.dims), []int{1, 1}
	for i := range perAxis {
		if !s[2+i].IsKnown() {
			if ceil {
				try.Fail("ceil_mode needs the size of spatial axis %d; export the model "+
					"with it fixed", i)
			}
			return c.counted(w)
		}
		perAxis[i] = c.covered(w, i, s[2+i].Size)
		shape = append(shape, len(perAxis[i]))
	}
	// The last axis runs fastest, as elements lie in memory.
	count, err := c.table(func(i int) float64 {
		n := 1.0
		for k := w.dims - 1; k >= 0; k-- {
			size := len(perAxis[k])
			n *= perAxis[k][i%size]
			i /= size
		}
		return n
	}, c.in(0), shape...)
	if err != nil && !ceil {
		return c.counted(w) // the pool of a large image counts as many
	}
	return try.Get(count, err)
}

// counted is the number of elements under each window, worked out where the model runs.
func (c *call) counted(w window) string {
	// A convolution of ones with ones counts them.
	shape := c.vec(c.ints(1, 1),
		c.op("Gather", []string{c.un("Shape", c.in(0)), c.ints(span(2, 2+w.dims)...)}))
	field := c.filledShape(shape, 1, c.dtype(c.in(0)))
	kernel := c.filledShape(c.ints(append([]int{1, 1}, w.Kernel...)...), 1, c.dtype(c.in(0)))
	w.group = 1
	return c.op("Conv", []string{field, kernel}, w.attrs(w.Strides, w.begin, w.end)...)
}

// covered is the number of elements under each window along spatial axis i, of the size in. Padding
// counts with count_include_pad alone, and room behind it that ceil_mode adds never does.
func (c *call) covered(w window, i, in int) []float64 {
	ceil, stride, dilation := c.attrs.Int("ceil_mode") == 1, w.Strides[i], w.Dilations[i]
	lo, hi := w.begin[i], w.begin[i]+in
	span := hi + w.end[i] - w.Extent(i)
	out := span/stride + 1
	if ceil {
		out = (span+stride-1)/stride + 1
		if (out-1)*stride >= hi {
			out-- // a window must start inside the input or its left padding
		}
	}
	if c.attrs.Int("count_include_pad") == 1 {
		lo, hi = 0, hi+w.end[i]
	}
	counts := make([]float64, try.Get(c.afford(8, max(0, out))))
	for o := range counts {
		// The first position of the kernel at lo or behind it, and the first at hi.
		from := max(0, lo-o*stride+dilation-1) / dilation
		to := min(w.Kernel[i], max(0, hi-o*stride+dilation-1)/dilation)
		counts[o] = float64(max(0, to-from))
	}
	return counts
}

// tile repeats g over windows that lie side by side and cover x exactly. Resize does it much faster
// than Expand on the ONNX Runtime's CPU. Each element of x is then in one window, so that the sum
// has one term.
func (c *call) tile(w window, x, y, g string) (string, bool) {
	sx, sy := c.shape(x), c.shape(y)
	if sy == nil || w.padded() || !allOnes(w.Dilations) {
		return "", false
	}
	scales := []float32{1, 1}
	for i := range w.Kernel {
		if w.Kernel[i] != w.Strides[i] || !sx[2+i].IsKnown() || sx[2+i].Size%w.Kernel[i] != 0 {
			return "", false
		}
		scales = append(scales, float32(w.Kernel[i]))
	}
	return c.op("Resize", []string{g, "", c.constant(onnx.Vector(scales...))},
		onnx.StrAttr("mode", "nearest"), onnx.StrAttr("nearest_mode", "floor"),
		onnx.StrAttr("coordinate_transformation_mode", "asymmetric")), true
}

// vjpGlobalMaxPool shares ȳ equally among the elements that attain the maximum.
func vjpGlobalMaxPool(c *call) []string {
	x := c.in(0)
	r := c.rank(x)
	attains := c.mask(c.op("Equal", []string{x, c.out(0)}), x)
	return []string{c.mul(c.div(c.g(), c.sum(attains, true, span(2, r)...)), attains)}
}

// vjpGlobalLpPool: the norm y has the slope sign(x) (|x|/y)^(p-1), taken for 0 where all is 0. p =
// 1 needs no norm: its slope is the sign alone.
func vjpGlobalLpPool(c *call) []string {
	x, y := c.in(0), c.out(0)
	slope := c.un("Sign", x)
	if p := c.attrs.Int("p"); p != 1 {
		norm := c.where(c.op("Equal", []string{y, c.num(0, x)}), c.num(1, x), y)
		slope = c.mul(slope, c.op("Pow",
			[]string{c.div(c.un("Abs", x), norm), c.num(float64(p-1), x)}))
	}
	return []string{c.mul(c.g(), slope)}
}
