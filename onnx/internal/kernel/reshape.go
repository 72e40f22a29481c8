package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout: the same elements under another shape,
// never copied.
func init() {
	register(
		Def{Op: "Reshape", Since: 1, Until: 4, New: newReshape},
		Def{Op: "Reshape", Since: 5, New: newReshape},
		Def{Op: "Flatten", Since: 1, New: newFlatten},
		Def{Op: "Squeeze", Since: 1, Until: 12, New: newSqueeze},
		Def{Op: "Squeeze", Since: 13, New: newSqueeze},
		Def{Op: "Unsqueeze", Since: 1, Until: 12, New: newUnsqueeze},
		Def{Op: "Unsqueeze", Since: 13, New: newUnsqueeze},
		Def{Op: "Identity", Since: 1, New: newIdentity},
		Def{Op: "Dropout", Since: 7, Until: 11, Half: true, New: newDropoutByAttribute},
		Def{Op: "Dropout", Since: 12, Half: true, New: newDropout},
	)
}

// newIdentity shares the input's buffer: Call.Alias says so, and the engine keeps it as long as
// either is read.
func newIdentity(*Spec) (Kernel, error) {
	return func(c *Call) error { return c.view(0, 0, c.In[0].Shape) }, nil
}

// Reshape: 0 copies the input's size (unless allowzero = 1), one -1 is worked out:
//
//	out_k = shape_k; prod out = prod in
func newReshape(s *Spec) (Kernel, error) {
	dims, allowZero := s.list("shape", 5), false
	if s.Opset < 5 {
		s.ignore("consumed_inputs")
	} else {
		allowZero = s.bool("allowzero")
	}
	return func(c *Call) error { return reshape(c, dims(c), allowZero) }, nil
}

// reshape works out the sizes and leaves to view to check that the numbers of elements agree. With
// allowzero = 1 a 0 is a size, beside which a -1 cannot be worked out and is refused.
func reshape(c *Call, dims []int, allowZero bool) error {
	in := c.In[0].Shape
	out := append([]int{}, dims...)
	unknown, known := -1, 1
	for k, d := range out {
		switch {
		case d == 0 && !allowZero:
			if k >= len(in) {
				return fmt.Errorf("shape %v copies axis %d of an input of shape %v", dims, k, in)
			}
			out[k] = in[k]
		case d == -1 && unknown < 0:
			unknown = k
			continue
		case d < 0:
			return fmt.Errorf("shape %v: sizes are at least 0, and one may be -1", dims)
		}
		known *= out[k]
	}
	if unknown >= 0 {
		if known == 0 || c.In[0].Len()%known != 0 {
			return fmt.Errorf("shape %v: an input of shape %v leaves no size for the -1", dims, in)
		}
		out[unknown] = c.In[0].Len() / known
	}
	return c.view(0, 0, out)
}

// Flatten: axis = 1; out = [prod in_{<axis}, prod in_{>=axis}]. The axis may equal the rank, which
// leaves a last size of 1.
func newFlatten(s *Spec) (Kernel, error) {
	axis := s.int("axis")
	return func(c *Call) error {
		in, ax := c.In[0].Shape, axis
		if ax < 0 {
			ax += len(in)
		}
		if ax < 0 || ax > len(in) {
			return fmt.Errorf("axis %d is outside a tensor of rank %d", axis, len(in))
		}
		// At the ends of the axes one product is empty, which is 1.
		return c.view(0, 0, []int{product(in[:ax]), product(in[ax:])})
	}, nil
}

// newSqueeze: axes are an attribute before operator set 13, and input 1 from then on.
func newSqueeze(s *Spec) (Kernel, error) {
	axes := s.list("axes", 13)
	return func(c *Call) error { return squeeze(c, axes(c)) }, nil
}

// squeeze drops the named axes, which must have size 1; all of size 1 where axes is nil.
func squeeze(c *Call, axes []int) error {
	in := c.In[0].Shape
	drop := make([]bool, len(in))
	if axes == nil {
		for k, d := range in {
			// Without axes all of size 1 go.
			drop[k] = d == 1
		}
	}
	ax := try.Get(axesOf(axes, len(in)))
	for _, a := range ax {
		if in[a] != 1 {
			return fmt.Errorf("axis %d of shape %v has size %d, not 1", a, in, in[a])
		}
		drop[a] = true
	}
	out := []int{}
	for k, d := range in {
		if !drop[k] {
			out = append(out, d)
		}
	}
	return c.view(0, 0, out)
}

// newUnsqueeze: axes are an attribute before operator set 13, and input 1 from then on.
func newUnsqueeze(s *Spec) (Kernel, error) {
	axes := s.list("axes", 13)
	return func(c *Call) error { return unsqueeze(c, axes(c)) }, nil
}

// unsqueeze: axes count in the output, out_a = 1 for a in axes.
func unsqueeze(c *Call, axes []int) error {
	in := c.In[0].Shape
	// -1 marks the places that the input's sizes take, in their order.
	out := slices.Repeat([]int{-1}, len(in)+len(axes))
	for _, a := range try.Get(axesOf(axes, len(out))) {
		out[a] = 1
	}
	for i := range out {
		if out[i] < 0 {
			out[i], in = in[0], in[1:]
		}
	}
	return c.view(0, 0, out)
}

// Dropout in inference: the identity; the mask is all true.
func newDropoutByAttribute(s *Spec) (Kernel, error) {
	s.ignore("ratio")
	return dropout, nil
}

// newDropout refuses training, and a training_mode that is known only at the run, when it is
// prepared. The ratio, input 1, has no effect then and is not read.
func newDropout(s *Spec) (Kernel, error) {
	s.ignore("seed")
	if s.has(2) {
		t := s.constant(2)
		if t == nil {
			return nil, fmt.Errorf("training_mode is not a constant, and dropping at random is not supported")
		}
		if b, ok := t.Data.([]bool); !ok || len(b) != 1 || b[0] {
			return nil, fmt.Errorf("training_mode = true is not supported")
		}
	}
	return dropout, nil
}

// dropout shares its input's buffer, and makes the mask only where it is read.
func dropout(c *Call) error {
	if c.wants(1) {
		mask := try.Get(c.New(1, onnx.Bool, c.In[0].Shape))
		fillRange(data[bool](mask), true)
	}
	return c.view(0, 0, c.In[0].Shape)
}
