package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx/internal/try"
)

// Transpose: perm (default: axes reversed); out_k = in_{perm_k}.
func init() {
	register(Def{Op: "Transpose", Since: 1, New: newTranspose})
}

// newTranspose reads the input through its strides in the order of perm. A perm that is no
// permutation of the axes is refused at the call, where the rank is known. The output is written in
// its own order, O(elements), while the input is read by strides.
func newTranspose(s *Spec) (Kernel, error) {
	perm := s.ints("perm")
	return func(c *Call) error {
		in := c.In[0].Shape
		p := perm
		if p == nil {
			p = upTo(len(in))
			slices.Reverse(p)
		}
		if len(p) != len(in) {
			return fmt.Errorf("perm %v for a tensor of rank %d", p, len(in))
		}
		// A negative entry counts from the end, and an axis given twice is an error.
		p, err := axesOf(p, len(in))
		if err != nil {
			return fmt.Errorf("perm %v: %w", perm, err)
		}
		st := strides(in)
		shape, stride := make([]int, len(in)), make([]int, len(in))
		for k, a := range p {
			shape[k], stride[k] = in[a], st[a]
		}
		out := try.Get(c.New(0, c.In[0].DType, shape))
		gather(c, out, c.In[0], 0, stride)
		return nil
	}, nil
}
