package kernel

import (
	"fmt"

	"fmp/onnx/internal/try"
)

// Concat: axis; out_axis = sum of the inputs' sizes there, all other sizes agree.
func init() {
	register(
		Def{Op: "Concat", Since: 1, New: newConcat},
	)
}

// newConcat: from operator set 4 on a node must give the axis. All inputs have the first's rank.
// The axis is resolved at the call, as a negative one counts from the rank.
func newConcat(s *Spec) (Kernel, error) {
	if s.Opset >= 4 && !s.hasAttr("axis") {
		return nil, fmt.Errorf("axis is missing")
	}
	axis := s.int("axis")
	return func(c *Call) error {
		first := c.In[0].Shape
		ax := try.Get(axisOf(axis, len(first)))
		// The size on the axis is summed up from 0; the first input's own must not change.
		shape := append([]int{}, first...)
		shape[ax] = 0
		for _, t := range c.In {
			// Ranks are compared first, so that the loop below stays within both shapes.
			if len(t.Shape) != len(first) {
				return fmt.Errorf("inputs of shapes %v and %v cannot be joined", first, t.Shape)
			}
			for k := range first {
				if k != ax && t.Shape[k] != first[k] {
					return fmt.Errorf("inputs of shapes %v and %v cannot be joined on axis %d",
						first, t.Shape, ax)
				}
			}
			shape[ax] += t.Shape[ax]
		}
		out := try.Get(c.New(0, c.In[0].DType, shape))
		// For each position of the axes before, one input after another is a single run. Input t
		// begins at element `at` of each run of shape[ax] · inner in the output.
		outer, inner, move := product(shape[:ax]), product(shape[ax+1:]), movesOf(out.Data)
		at := 0
		for _, t := range c.In {
			n := t.Shape[ax] * inner
			for i := 0; i < outer; i++ {
				move.copy(out.Data, i*shape[ax]*inner+at, t.Data, i*n, n)
			}
			at += n
		}
		return nil
	}, nil
}
