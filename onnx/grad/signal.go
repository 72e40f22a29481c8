package grad

import (
	"fmt"

	"fmp/onnx"
)

func init() {
	register(vjpDFT, "DFT")
	register(vjpSTFT, "STFT")
}

// dft emits a transform of x [..., 1 or 2] along an axis that is not its last, to a length that is a scalar.
func (e *emitter) dft(x, length string, axis int, inverse bool) string {
	in, attrs := []string{x, length}, []onnx.Attr{onnx.BoolAttr("inverse", inverse)}
	if e.opset < 20 {
		attrs = append(attrs, onnx.IntAttr("axis", axis))
	} else {
		in = append(in, e.constant(onnx.Scalar(int64(axis))))
	}
	return e.op("DFT", in, attrs...)
}

// adjointDFT is the transpose of a transform of length n (a scalar of integers) for real parts and imaginary ones: the
// transform the other way, which divides by n where the first does not. What one side leaves out is filled with zeros.
func (e *emitter) adjointDFT(g, n string, axis int, inverse bool) string {
	length := e.cast(n, e.dtype(g))
	if bar := e.dft(g, n, axis, !inverse); inverse {
		return e.div(bar, length)
	} else {
		return e.mul(bar, length)
	}
}

// vjpDFT turns the transform round, and cuts or fills the axis to the input's size.
func vjpDFT(c *call) ([]string, error) {
	x := c.in(0)
	r, err := c.rank(x)
	if err != nil {
		return nil, err
	}
	axis := -2
	if c.opset < 20 {
		axis = c.attrs.Int("axis")
	}
	if in := c.in(2); in != "" {
		v, ok := c.constInts(in)
		if !ok || len(v) != 1 {
			return nil, fmt.Errorf("the axis is worked out by the graph; make it a constant")
		}
		axis = v[0]
	}
	if axis < 0 {
		axis += r
	}
	if axis < 0 || axis >= r-1 {
		return nil, fmt.Errorf("axis %d of a tensor of rank %d", axis, r)
	}
	n := c.in(1)
	if n == "" {
		n = c.squeeze(c.dim(x, axis), 0)
	}
	bar := c.adjointDFT(c.g(), n, axis, c.attrs.Int("inverse") != 0)
	// The end of the axis, and the imaginary parts of what is real, are cut off by padding of less than 0.
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
		ends[axis] = c.intOp("Sub", c.dim(x, axis), length)
	}
	ends[r-1] = c.intOp("Sub", c.dim(x, r-1), c.ints(2))
	return []string{c.as(c.op("Pad", []string{bar, c.vec(append([]string{zeros}, ends...)...)}), x)}, nil
}

// vjpSTFT turns every frame's transform round: the signal gets the sum of its frames, times the window, and the window the
// sum of the frames' products with the signal.
func vjpSTFT(c *call) ([]string, error) {
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
	frames := c.op("Range", []string{zero, scalar(c.op("Gather", []string{c.un("Shape", c.out(0)), c.ints(1)})), one})
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
		out[0] = c.as(c.scatterAdd(c.shapeOf(x), c.op("Expand", []string{flat, c.un("Shape", u)}), u, 1, c.dtype(x)), x)
	}
	if window != "" && c.wants(2) {
		out[2] = c.as(c.sum(c.mul(bar, c.op("Gather", []string{x, at}, onnx.IntAttr("axis", 1))), false, 0, 1, 3), window)
	}
	return out, nil
}
