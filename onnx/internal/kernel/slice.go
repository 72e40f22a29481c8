package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx/internal/try"
)

// Slice: starts, ends, axes (default 0, 1, ...), steps (default 1), from attributes before opset
// 10. Negative positions count from the end, and all are clamped:
//
//	step > 0: out = ceil((end - start) / step), 0 <= start, end <= n
//	step < 0: out = ceil((end - start) / step), 0 <= start <= n - 1, -1 <= end <= n - 1
func init() {
	register(
		Def{Op: "Slice", Since: 1, Until: 9, New: newSliceByAttribute},
		Def{Op: "Slice", Since: 10, New: newSlice},
	)
}

// newSliceByAttribute has no steps, which the operator lacks before set 10.
func newSliceByAttribute(s *Spec) (Kernel, error) {
	starts, ends, axes := s.ints("starts"), s.ints("ends"), s.ints("axes")
	return func(c *Call) error { return slice(c, starts, ends, axes, nil) }, nil
}

// newSlice reads starts, ends, axes and steps, inputs 1 to 4, at every call, as other nodes may
// make them.
func newSlice(*Spec) (Kernel, error) {
	return func(c *Call) error {
		var v [4][]int
		for i := range v {
			if t := c.in(i + 1); t != nil {
				v[i] = try.Get(ints(t))
			}
		}
		return slice(c, v[0], v[1], v[2], v[3])
	}, nil
}

// slice turns positions into an offset and strides for gather. The whole input without steps shares
// its buffer and copies nothing.
func slice(c *Call, starts, ends, axes, steps []int) error {
	in := c.In[0].Shape
	if axes == nil {
		axes = upTo(len(starts))
	}
	if len(ends) != len(starts) || len(axes) != len(starts) ||
		(steps != nil && len(steps) != len(starts)) {
		return fmt.Errorf("starts %v, ends %v, axes %v and steps %v differ in length", starts,
			ends, axes, steps)
	}
	ax := try.Get(axesOf(axes, len(in)))
	shape, st, off := append([]int{}, in...), strides(in), 0
	for i, a := range ax {
		n, start, end, step := in[a], starts[i], ends[i], 1
		if steps != nil {
			step = steps[i]
		}
		if step == 0 {
			return fmt.Errorf("steps %v: one is 0", steps)
		}
		// Neither sum overflows: a negative number and a size of at least 0 are added.
		if start < 0 {
			start += n
		}
		if end < 0 {
			end += n
		}
		if step > 0 {
			start, end = min(max(start, 0), n), min(max(end, 0), n)
			shape[a] = max(0, ceilDiv(end-start, step))
		} else {
			start, end = min(max(start, 0), n-1), min(max(end, -1), n-1)
			shape[a] = max(0, ceilDiv(start-end, -step))
		}
		if shape[a] <= 1 {
			step = 1 // the stride is never taken, and could overflow
		}
		// A walk backward over an empty axis has the start -1, which is no offset.
		if shape[a] > 0 {
			off += start * st[a]
		}
		// Two elements or more lie within the axis, so that |step| < n and the product fits an int.
		st[a] *= step
	}
	if slices.Equal(shape, in) && off == 0 && steps == nil {
		return c.view(0, 0, shape)
	}
	out := try.Get(c.New(0, c.In[0].DType, shape))
	gather(c, out, c.In[0], off, st)
	return nil
}

// ceilDiv is ceil(a / b) for b > 0, also where a + b would overflow.
func ceilDiv(a, b int) int {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}
