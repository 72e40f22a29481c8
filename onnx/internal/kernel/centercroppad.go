package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx/internal/try"
)

// CenterCropPad: axes (default all); each named axis is cut or filled with zeros to its size in
// input 1, about its centre. An odd difference is cut before and filled behind by one less and one
// more.
func init() {
	register(Def{Op: "CenterCropPad", Since: 18, New: newCenterCropPad})
}

// newCenterCropPad copies rows of the block that input and output share. Negative sizes are refused
// by Call.New.
func newCenterCropPad(s *Spec) (Kernel, error) {
	named, axes := s.hasAttr("axes"), s.ints("axes")
	return func(c *Call) error {
		in := c.In[0].Shape
		sizes := try.Get(ints(c.In[1]))
		ax := axes
		if !named {
			ax = upTo(len(in))
		}
		ax = try.Get(axesOf(ax, len(in)))
		if len(ax) != len(sizes) {
			return fmt.Errorf("%d sizes for %d axes", len(sizes), len(ax))
		}
		shape := slices.Clone(in)
		for i, a := range ax {
			shape[a] = sizes[i]
		}
		out := try.Get(c.New(0, c.In[0].DType, shape))
		clearData(out)
		// The block that both hold, from its corner in either.
		both := slices.Clone(in)
		from, to, is, os := 0, 0, strides(in), strides(shape)
		for a := range in {
			// Halves of differences are rounded down, which leaves the odd element behind the
			// block.
			if both[a] = min(in[a], shape[a]); in[a] > shape[a] {
				from += (in[a] - shape[a]) / 2 * is[a]
			} else {
				to += (shape[a] - in[a]) / 2 * os[a]
			}
		}
		if product(both) == 0 {
			return nil
		}
		last := len(both) - 1
		if last < 0 {
			Copy(out, c.In[0])
			return nil
		}
		rows := newOdometer(both[:last], [][]int{is[:last], os[:last]}, 0)
		for range product(both[:last]) {
			copyRange(out.Data, to+rows.off[1], c.In[0].Data, from+rows.off[0], both[last])
			rows.next()
		}
		return nil
	}, nil
}
