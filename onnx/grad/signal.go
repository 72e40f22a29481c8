package grad

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

func init() {
	register(vjpDFT, "DFT")
	register(vjpSTFT, "STFT")
}

// dft emits a transform of x [..., 1 or 2] along an axis that is not its last, to a length that is
// a scalar. The axis is an attribute before operator set 20, and an input from then on.
func (e *emitter) dft(x, length string, axis int, attrs ...onnx.Attr) string {
	in := []string{x, length}
	if e.opset < 20 {
		attrs = append(attrs, onnx.IntAttr("axis", axis))
	} else {
		in = append(in, e.constant(onnx.Scalar(int64(axis))))
	}
	return e.op("DFT", in, attrs...)
}

// adjointDFT is the transpose of a transform of length n (a scalar of integers) for real parts and
// imaginary ones: the transform the other way, which divides by n where the first does not.
// Elements that one side leaves out are filled with zeros. As a real map of pairs, the transpose of
// F is its conjugate transpose, n F⁻¹; that of F⁻¹ is F / n.
func (e *emitter) adjointDFT(g, n string, axis int, inverse bool) string {
	length := e.cast(n, e.dtype(g))
	if bar := e.dft(g, n, axis, onnx.BoolAttr("inverse", !inverse)); inverse {
		return e.div(bar, length)
	} else {
		return e.mul(bar, length)
	}
}

// adjointRealDFT is the transpose of the inverse transform of one side to n real numbers: g's own
// transform of one side, divided by n, and twice that for the bins whose conjugates are not given,
// all but the first and, where n is even, the last.
func (e *emitter) adjointRealDFT(g, n string, axis, rank int) string {
	whole := func(v int64) string { return e.constant(onnx.Scalar(v)) }
	bar := e.dft(g, n, axis, onnx.BoolAttr("onesided", true))
	bins := e.squeeze(e.op("Gather", []string{e.un("Shape", bar), e.ints(axis)}), 0)
	k := e.op("Range", []string{whole(0), bins, whole(1)})
	// Bin 0, and bin n/2 of an even n, are their own conjugates.
	once := e.op("Or", []string{e.op("Equal", []string{k, whole(0)}),
		e.op("Equal", []string{e.mul(k, whole(2)), n})})
	times := e.cast(e.where(once, whole(1), whole(2)), e.dtype(g))
	return e.div(e.mul(bar, e.unsqueeze(times, span(1, rank-axis)...)), e.cast(n, e.dtype(g)))
}

// vjpDFT turns the transform round, and cuts or fills the axis to the input's size. A forward
// transform of one side drops bins that are conjugates; filling them with zeros is the adjoint.
func vjpDFT(c *call) []string {
	x := c.in(0)
	r := c.rank(x)
	axis := -2
	if c.opset < 20 {
		axis = c.attrs.Int("axis")
	}
	if in := c.in(2); in != "" {
		v, ok := c.constInts(in)
		if !ok || len(v) != 1 {
			try.Fail("the axis is worked out by the graph; make it a constant")
		}
		axis = v[0]
	}
	if axis < 0 {
		axis += r
	}
	if axis < 0 || axis >= r-1 {
		try.Fail("axis %d of a tensor of rank %d", axis, r)
	}
	inverse, n := c.attrs.Bool("inverse"), c.in(1)
	real := inverse && c.attrs.Bool("onesided")
	switch {
	case n == "" && real:
		n = c.squeeze(c.intOp("Mul", c.intOp("Sub", c.dim(x, axis), c.ints(1)), c.ints(2)), 0)
	case n == "":
		n = c.squeeze(c.dim(x, axis), 0)
	}
	bar := ""
	if real {
		n = c.cast(n, onnx.Int64)
		bar = c.adjointRealDFT(c.g(), n, axis, r)
	} else {
		bar = c.adjointDFT(c.g(), n, axis, inverse)
	}
	// The end of the axis, and the imaginary parts of real values, are cut off by padding of less
	// than 0.
	zeros := c.ints(make([]int, r)...)
	ends := make([]string, r)
	for i := range ends {
		ends[i] = c.ints(0)
	}
	if c.in(1) != "" {
		length := c.reshape(c.cast(n, onnx.Int64), c.ints(1))
		if v, ok := c.constInts(n); ok {
			length = c.ints(v...)
		}
		if real {
			length = c.intOp("Add", c.intOp("Div", length, c.ints(2)), c.ints(1))
		}
		ends[axis] = c.intOp("Sub", c.dim(x, axis), length)
	}
	// The transform has pairs on the last axis: real values keep the first of each.
	ends[r-1] = c.intOp("Sub", c.dim(x, r-1), c.ints(2))
	return []string{c.as(c.op("Pad", []string{bar, c.vec(append([]string{zeros}, ends...)...)}), x)}
}

// vjpSTFT turns every frame's transform round: the signal gets the sum of its frames, times the
// window, and the window the sum of the frames' products with the signal. Frames overlap, and each
// sample adds up the cotangents of all frames that hold it.
func vjpSTFT(c *call) []string {
	x, step, window := c.in(0), c.in(1), c.in(2)
	length := c.in(3)
	if length == "" {
		length = c.dim(window, 0)
	}
	scalar := func(v string) string {
		return c.reshape(c.cast(v, onnx.Int64), c.constant(onnx.NewTensor([]int64{}, 0)))
	}
	n := scalar(length)
	parts := c.dim(x, 2)
	// [batch, frames, n, parts]
	bar := c.op("Slice", []string{c.adjointDFT(c.g(), n, 2, false), c.ints(0), parts, c.ints(3)})
	// at[f, k] = f step + k
	zero, one := c.constant(onnx.Scalar(int64(0))), c.constant(onnx.Scalar(int64(1)))
	frames := c.op("Range", []string{zero,
		scalar(c.op("Gather", []string{c.un("Shape", c.out(0)), c.ints(1)})), one})
	at := c.add(c.mul(c.unsqueeze(frames, 1), scalar(step)), c.op("Range", []string{zero, n, one}))
	out := make([]string, 4)
	if c.wants(0) {
		u := bar
		if window != "" {
			u = c.mul(bar, c.unsqueeze(window, 1))
		}
		// Frames and positions become one axis, along which they are added up.
		u = c.op("Reshape", []string{u, c.vec(c.dim(x, 0), c.ints(-1), parts)})
		flat := c.op("Reshape", []string{at, c.ints(1, -1, 1)})
		out[0] = c.as(c.scatterAdd(c.shapeOf(x), c.op("Expand", []string{flat, c.un("Shape", u)}),
			u, 1, c.dtype(x)), x)
	}
	if window != "" && c.wants(2) {
		out[2] = c.as(c.sum(c.mul(bar, c.op("Gather", []string{x, at}, onnx.IntAttr("axis", 1))),
			false, 0, 1, 3), window)
	}
	return out
}
