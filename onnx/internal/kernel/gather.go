package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Gather, GatherElements, GatherND, Compress, ReverseSequence: selection by index. Negative indices
// count from the end; one outside is an error.
func init() {
	register(
		Def{Op: "Gather", Since: 1, New: newGather},
		Def{Op: "GatherElements", Since: 11, New: newGatherElements},
		Def{Op: "GatherND", Since: 11, New: newGatherND},
		Def{Op: "Compress", Since: 9, New: newCompress},
		Def{Op: "ReverseSequence", Since: 10, New: newReverseSequence},
	)
}

// at checks an index into an axis of size n.
func at(i, n int) (int, error) {
	if i < -n || i >= n {
		return 0, fmt.Errorf("index %d is outside an axis of size %d", i, n)
	}
	if i < 0 {
		i += n
	}
	return i, nil
}

// Gather: axis = 0; out = [in_{<axis}, indices..., in_{>axis}]. It costs one copy a run of the axes
// behind.
func newGather(s *Spec) (Kernel, error) {
	axis := s.int("axis")
	return func(c *Call) error {
		in := c.In[0].Shape
		ax := try.Get(axisOf(axis, len(in)))
		idx := try.Get(ints(c.In[1]))
		shape := append(append(append([]int{}, in[:ax]...), c.In[1].Shape...), in[ax+1:]...)
		out := try.Get(c.New(0, c.In[0].DType, shape))
		for j := range idx {
			// ints gives a slice of the call's own, which may be changed.
			idx[j] = try.Get(at(idx[j], in[ax]))
		}
		takeAlong(out, c.In[0], in, ax, idx)
		return nil
	}, nil
}

// takeAlong sets out to the given positions on an axis of x, read as one of shape in. Positions are
// checked by the caller. in has as many elements as x, which may have another shape, as a flattened
// one.
func takeAlong(out, x *onnx.Tensor, in []int, axis int, positions []int) {
	inner, n, move := product(in[axis+1:]), len(positions), movesOf(x.Data)
	for o := range product(in[:axis]) {
		for j, i := range positions {
			move.copy(out.Data, (o*n+j)*inner, x.Data, (o*in[axis]+i)*inner, inner)
		}
	}
}

// elementOffset is the offset in a tensor of strides st of position i of a tensor of shape `shape`,
// with coordinate `axis` replaced by v. It costs O(rank) divisions. The same strides serve although
// shape may be smaller than the tensor's.
func elementOffset(i int, shape, st []int, axis, v int) int {
	off := v * st[axis]
	for k := len(shape) - 1; k >= 0; k-- {
		if k != axis {
			off += i % shape[k] * st[k]
		}
		i /= shape[k]
	}
	return off
}

// GatherElements: axis = 0; out[i_1, ..., i_r] = in[i_1, ..., indices[i], ..., i_r], out's shape =
// indices'.
func newGatherElements(s *Spec) (Kernel, error) {
	axis := s.int("axis")
	return func(c *Call) error {
		in, is := c.In[0].Shape, c.In[1].Shape
		try.Do(elementShapes(in, is, axis))
		ax, _ := axisOf(axis, len(in))
		idx := try.Get(ints(c.In[1]))
		out := try.Get(c.New(0, c.In[0].DType, is))
		st, move := strides(in), movesOf(out.Data)
		for i, v := range idx {
			v = try.Get(at(v, in[ax]))
			move.copy(out.Data, i, c.In[0].Data, elementOffset(i, is, st, ax, v), 1)
		}
		return nil
	}, nil
}

// elementShapes: indices have the input's rank, and no axis but `axis` is longer than the input's.
// A bad axis ends the kernel by package try.
func elementShapes(in, idx []int, axis int) error {
	ax := try.Get(axisOf(axis, len(in)))
	if len(in) != len(idx) {
		return fmt.Errorf("indices of shape %v for a tensor of shape %v: the ranks differ", idx, in)
	}
	for k := range in {
		if k != ax && idx[k] > in[k] {
			return fmt.Errorf("indices of shape %v reach beyond a tensor of shape %v on axis %d",
				idx, in, k)
		}
	}
	return nil
}

// GatherND: batch_dims = 0; the last axis of indices [..., d] addresses axes batch.. of the input:
//
//	out = [indices_{<last}..., in_{batch+d}...]
//
// The first `batch` axes are common to both: item b of the indices addresses item b of the input.
// Each row of d indices copies one block of the axes behind.
func newGatherND(s *Spec) (Kernel, error) {
	batch := s.int("batch_dims")
	return func(c *Call) error {
		in, is := c.In[0].Shape, c.In[1].Shape
		if len(is) == 0 || batch < 0 || batch >= len(is) || batch > len(in) {
			return fmt.Errorf("indices of shape %v and batch_dims %d for a tensor of shape %v", is,
				batch, in)
		}
		d := is[len(is)-1]
		if batch+d > len(in) || !slices.Equal(in[:batch], is[:batch]) {
			return fmt.Errorf("indices of shape %v and batch_dims %d do not address a tensor of shape %v",
				is, batch, in)
		}
		idx := try.Get(ints(c.In[1]))
		shape := append(append([]int{}, is[:len(is)-1]...), in[batch+d:]...)
		out := try.Get(c.New(0, c.In[0].DType, shape))
		block, st, move := product(in[batch+d:]), strides(in), movesOf(out.Data)
		rows, n := product(is[:len(is)-1]), product(is[batch:len(is)-1])
		for r := 0; r < rows; r++ {
			// r/n is the batch item of row r.
			off := r / max(n, 1) * product(in[batch:])
			for k := 0; k < d; k++ {
				v := try.Get(at(idx[r*d+k], in[batch+k]))
				off += v * st[batch+k]
			}
			move.copy(out.Data, r*block, c.In[0].Data, off, block)
		}
		return nil
	}, nil
}

// Compress: keeps the slices along axis whose condition is true; without an axis, of the flattened
// input. A condition shorter than the axis drops the rest.
func newCompress(s *Spec) (Kernel, error) {
	flat := !s.hasAttr("axis")
	axis := s.int("axis")
	return func(c *Call) error {
		in := c.In[0].Shape
		if flat {
			in = []int{c.In[0].Len()}
		}
		ax := try.Get(axisOf(axis, len(in)))
		cond := data[bool](c.In[1])
		if len(c.In[1].Shape) != 1 || len(cond) > in[ax] {
			return fmt.Errorf("condition of shape %v for an axis of size %d", c.In[1].Shape, in[ax])
		}
		var keep []int
		for i, v := range cond {
			if v {
				keep = append(keep, i)
			}
		}
		shape := append([]int{}, in...)
		shape[ax] = len(keep)
		out := try.Get(c.New(0, c.In[0].DType, shape))
		takeAlong(out, c.In[0], in, ax, keep)
		return nil
	}, nil
}

// ReverseSequence: time_axis = 0, batch_axis = 1 (one is 0, the other 1); the first lengths[b]
// steps of batch item b are reversed. It refuses a length that is negative or beyond the time axis.
func newReverseSequence(s *Spec) (Kernel, error) {
	timeAxis, batchAxis := s.int("time_axis"), s.int("batch_axis")
	if timeAxis+batchAxis != 1 || timeAxis*batchAxis != 0 {
		return nil, fmt.Errorf("time_axis %d and batch_axis %d: one is 0 and the other 1",
			timeAxis, batchAxis)
	}
	return func(c *Call) error {
		in := c.In[0].Shape
		if len(in) < 2 || c.In[1].Len() != in[batchAxis] {
			return fmt.Errorf("lengths of shape %v for a tensor of shape %v", c.In[1].Shape, in)
		}
		out := try.Get(c.New(0, c.In[0].DType, in))
		inner := product(in[2:])
		for i := 0; i < in[0]; i++ {
			for j := 0; j < in[1]; j++ {
				t, b := i, j
				if timeAxis == 1 {
					t, b = j, i
				}
				n := onnx.ClampInt(c.In[1].I64()[b])
				if n < 0 || n > in[timeAxis] {
					return fmt.Errorf("length %d is outside 0 to %d", n, in[timeAxis])
				}
				// Steps from n on stay where they are.
				from := t
				if t < n {
					from = n - 1 - t
				}
				src := from*in[1] + b
				if timeAxis == 1 {
					src = b*in[1] + from
				}
				copyRange(out.Data, (i*in[1]+j)*inner, c.In[0].Data, src*inner, inner)
			}
		}
		return nil
	}, nil
}
