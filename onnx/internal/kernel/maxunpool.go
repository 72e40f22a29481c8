package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// MaxUnpool: pads = 0, strides = 1. x [n, c, d...] goes to the places of i, which count all
// elements of an output of size (d_k - 1) stride_k + kernel_k - pad_k - pad_{k+r}; zeros stand
// elsewhere. output_shape, where it is given, adds zeros behind each axis. An index that comes
// twice has the later value. It runs on one thread, since the order of writes decides between equal
// indices.
func newMaxUnpool(s *Spec) (Kernel, error) {
	w := newWindow(s)
	r := len(w.size)
	if w.stride == nil {
		w.stride = slices.Repeat([]int{1}, r)
	}
	if len(w.begin) == 0 {
		w.begin, w.end = make([]int, r), make([]int, r)
	}
	if r == 0 || len(w.begin) != r || len(w.stride) != r {
		return nil, fmt.Errorf("kernel_shape %v, strides %v and pads %v do not belong together",
			w.size, w.stride, append(w.begin, w.end...))
	}
	return func(c *Call) error {
		x, at := c.In[0], c.In[1]
		if len(x.Shape) != r+2 || !slices.Equal(x.Shape, at.Shape) {
			return fmt.Errorf("values of shape %v and indices of shape %v for a kernel of %d axes",
				x.Shape, at.Shape, r)
		}
		inner := slices.Clone(x.Shape)
		for k := range r {
			// In 64 bits, so that hostile strides are refused on machines with ints of 32 bits as
			// well.
			v := int64(x.Shape[k+2]-1)*int64(w.stride[k]) + int64(w.size[k]-w.begin[k]-w.end[k])
			if v < 0 || v > onnx.MaxElements {
				return fmt.Errorf("the output would have the size %d on axis %d", v, k+2)
			}
			inner[k+2] = int(v)
		}
		shape := inner
		if t := c.in(2); t != nil {
			shape = try.Get(ints(t))
			// Batch and channels are not padded: output_shape must agree with x there.
			if len(shape) != len(inner) || !slices.Equal(shape[:2], inner[:2]) {
				return fmt.Errorf("output_shape is %v where %v or more is expected", shape, inner)
			}
			for k := range shape {
				if shape[k] < inner[k] {
					return fmt.Errorf("output_shape is %v where %v or more is expected",
						shape, inner)
				}
			}
		}
		out := try.Get(c.New(0, x.DType, shape))
		// A new output holds arbitrary numbers, and most of its places get none of x.
		clearData(out)
		// Indices count places of the output without output_shape: each is split into its
		// coordinates there and put at the same coordinates of the larger output.
		total, st, pos := product(inner), strides(shape), make([]int, len(inner))
		move := movesOf(x.Data)
		for i, p := range at.I64() {
			if p < 0 || p >= int64(total) {
				return fmt.Errorf("index %d is outside an output of shape %v", p, inner)
			}
			unravel(pos, int(p), inner)
			off := 0
			for k, v := range pos {
				off += v * st[k]
			}
			move.copy(out.Data, off, x.Data, i, 1)
		}
		return nil
	}, nil
}
