package kernel

import (
	"fmt"

	"fmp/onnx/internal/try"
)

// Split: axis = 0; sizes from an attribute (before 13) or input 1, else equal parts (from 18 on the
// last may be smaller and num_outputs may be given).
func init() {
	register(
		Def{Op: "Split", Since: 2, Until: 12, New: newSplit},
		Def{Op: "Split", Since: 13, New: newSplit},
	)
}

// newSplit takes the number of parts from the node's outputs, so that num_outputs need not be read.
func newSplit(s *Spec) (Kernel, error) {
	axis, sizes, uneven := s.int("axis"), s.list("split", 13), s.Opset >= 18
	s.ignore("num_outputs")
	return func(c *Call) error { return split(c, axis, sizes(c), uneven) }, nil
}

// split copies parts of the axis to the outputs; sizes nil divides it by their number n, in parts
// of ceil(size/n). The last parts may then be smaller, or empty, where uneven allows it. An output
// that no node reads is not made.
func split(c *Call, axis int, sizes []int, uneven bool) error {
	in := c.In[0].Shape
	ax := try.Get(axisOf(axis, len(in)))
	n := len(c.Out)
	if sizes == nil {
		if in[ax]%n != 0 && !uneven {
			return fmt.Errorf("axis %d of size %d cannot be split into %d equal parts",
				ax, in[ax], n)
		}
		part := (in[ax] + n - 1) / n
		// sizes is nil here, so that append makes a list and never writes into an attribute's.
		for i, left := 0, in[ax]; i < n; i++ {
			k := max(0, min(part, left))
			sizes = append(sizes, k)
			left -= k
		}
	}
	// Each size is held to the rest of the axis, so that hostile sizes cannot overflow the sum.
	sum := 0
	for _, v := range sizes {
		if v < 0 || v > in[ax]-sum {
			return fmt.Errorf("split sizes %v: one is negative, or all are more than axis %d of size %d",
				sizes, ax, in[ax])
		}
		sum += v
	}
	if len(sizes) != n || sum != in[ax] {
		return fmt.Errorf("split sizes %v do not make up axis %d of size %d in %d outputs",
			sizes, ax, in[ax], n)
	}
	// Element (o, a, i) of the input lies at (o size + a) inner + i. The output's first a is `at`.
	outer, inner, move := product(in[:ax]), product(in[ax+1:]), movesOf(c.In[0].Data)
	at := 0
	for i, v := range sizes {
		if c.wants(i) {
			shape := append([]int{}, in...)
			shape[ax] = v
			out := try.Get(c.New(i, c.In[0].DType, shape))
			for o := 0; o < outer; o++ {
				move.copy(out.Data, o*v*inner, c.In[0].Data, (o*in[ax]+at)*inner, v*inner)
			}
		}
		at += v
	}
	return nil
}
