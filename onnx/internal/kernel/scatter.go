package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// ScatterElements (Scatter before opset 11), ScatterND: a copy of the input with elements replaced
// or, with reduction add, mul, min or max, combined with the updates, in the order of the indices.
func init() {
	register(
		Def{Op: "Scatter", Since: 9, Until: 10, New: newScatterElements},
		Def{Op: "ScatterElements", Since: 11, New: newScatterElements},
		Def{Op: "ScatterND", Since: 11, New: newScatterND},
	)
}

// combiner puts one element of an update in its place. dst and src are slices of one element type;
// dst[d] is replaced by, or combined with, src[s].
type combiner func(dst any, d int, src any, s int)

// newCombiner returns a copy for reduction none; an error names a reduction of a type that has
// none. Before operator set 16 there is no reduction. It ends by package try, not by an error of
// its own.
func newCombiner(s *Spec) combiner {
	r := "none"
	if s.Opset >= 16 {
		r = s.str("reduction")
	}
	if r == "none" {
		move := movesOf(try.Get(onnx.Zeros(s.In[0], 0)).Data)
		return func(dst any, d int, src any, i int) { move.copy(dst, d, src, i, 1) }
	}
	if !numbers.Has(s.In[0]) {
		try.Fail("reduction %q of element type %v is not supported", r, s.In[0])
	}
	return func(dst any, d int, src any, i int) {
		switch to := dst.(type) {
		case []float32:
			combine(r, to, d, src.([]float32)[i])
		case []float64:
			combine(r, to, d, src.([]float64)[i])
		case []int8:
			combine(r, to, d, src.([]int8)[i])
		case []int16:
			combine(r, to, d, src.([]int16)[i])
		case []int32:
			combine(r, to, d, src.([]int32)[i])
		case []int64:
			combine(r, to, d, src.([]int64)[i])
		case []uint8:
			combine(r, to, d, src.([]uint8)[i])
		case []uint16:
			combine(r, to, d, src.([]uint16)[i])
		case []uint32:
			combine(r, to, d, src.([]uint32)[i])
		case []uint64:
			combine(r, to, d, src.([]uint64)[i])
		}
	}
}

// combine sets dst[d] to its reduction with v. Floats give NaN where either is NaN, integers wrap
// around.
func combine[T number](r string, dst []T, d int, v T) {
	switch r {
	case "add":
		dst[d] += v
	case "mul":
		dst[d] *= v
	case "min":
		dst[d] = min(dst[d], v)
	case "max":
		dst[d] = max(dst[d], v)
	}
}

// copied makes output 0 a copy of input 0. The input itself becomes the output where nobody needs
// it afterwards. Without that the copy is O(elements), whatever the number of updates.
func copied(c *Call) *onnx.Tensor {
	out := try.Get(c.over(0, 0, c.In[0].DType, c.In[0].Shape))
	if c.Alias[0] < 0 {
		copyRange(out.Data, 0, c.In[0].Data, 0, out.Len())
	}
	return out
}

// ScatterElements: axis = 0; out[i_1, ..., indices[i], ..., i_r] = updates[i]. It runs on one
// thread: an element may be addressed more than once, and the last update, or the order of a sum,
// must not depend on threads.
func newScatterElements(s *Spec) (Kernel, error) {
	axis := s.int("axis")
	put := newCombiner(s)
	return func(c *Call) error {
		in, is := c.In[0].Shape, c.In[1].Shape
		try.Do(elementShapes(in, is, axis))
		if !slices.Equal(is, c.In[2].Shape) {
			return fmt.Errorf("updates of shape %v for indices of shape %v", c.In[2].Shape, is)
		}
		// elementShapes has checked the axis.
		ax, _ := axisOf(axis, len(in))
		idx := try.Get(ints(c.In[1]))
		out := copied(c)
		st := strides(in)
		for i, v := range idx {
			// An index out of bounds ends the kernel, and the output made so far is given up with
			// the call.
			v = try.Get(at(v, in[ax]))
			put(out.Data, elementOffset(i, is, st, ax, v), c.In[2].Data, i)
		}
		return nil
	}, nil
}

// ScatterND: indices [..., d] address blocks in_{d}...; updates = [indices_{<last}..., in_{d}...].
// Its updates are put in order on one thread, for the same reason.
func newScatterND(s *Spec) (Kernel, error) {
	put := newCombiner(s)
	return func(c *Call) error {
		in, is := c.In[0].Shape, c.In[1].Shape
		if len(is) == 0 || is[len(is)-1] > len(in) {
			return fmt.Errorf("indices of shape %v do not address a tensor of shape %v", is, in)
		}
		d := is[len(is)-1]
		want := append(append([]int{}, is[:len(is)-1]...), in[d:]...)
		if !slices.Equal(want, c.In[2].Shape) {
			return fmt.Errorf("updates of shape %v where %v is expected", c.In[2].Shape, want)
		}
		idx := try.Get(ints(c.In[1]))
		out := copied(c)
		st, block := strides(in), product(in[d:])
		for r, rows := 0, product(is[:len(is)-1]); r < rows; r++ {
			// Row r of the indices is a place of d coordinates, each of which may count from the
			// end.
			off := 0
			for k := 0; k < d; k++ {
				v := try.Get(at(idx[r*d+k], in[k]))
				off += v * st[k]
			}
			for j := 0; j < block; j++ {
				put(out.Data, off+j, c.In[2].Data, r*block+j)
			}
		}
		return nil
	}, nil
}
