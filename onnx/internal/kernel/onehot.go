package kernel

import (
	"fmt"
	"math"

	"fmp/onnx/internal/try"
)

// OneHot: axis = -1; out = [indices_{<axis}, depth, indices_{>=axis}], values[1] where the index
// points and values[0] elsewhere; an index outside -depth .. depth-1 points nowhere. Indices and
// depth of floats are cut to whole numbers.
func init() {
	register(Def{Op: "OneHot", Since: 9, New: newOneHot})
}

// newOneHot fills with the value for off, and then sets one element for each index: O(outputs).
// Indices and depth may be of any number type and are read as float64.
func newOneHot(s *Spec) (Kernel, error) {
	axis := s.int("axis")
	return func(c *Call) error {
		in := c.In[0].Shape
		ax := try.Get(axisOf(axis, len(in)+1))
		if c.In[1].Len() != 1 || c.In[2].Len() != 2 {
			return fmt.Errorf(
				"depth of shape %v and values of shape %v where one and two elements are expected",
				c.In[1].Shape, c.In[2].Shape)
		}
		d := math.Trunc(c.In[1].At(0))
		// A NaN fails the comparisons and is refused. The bound fits ints of 32 bits.
		if !(d >= 1 && d <= 1<<30) {
			return fmt.Errorf("depth %v is out of range", d)
		}
		depth := int(d)
		shape := append(append(append([]int{}, in[:ax]...), depth), in[ax:]...)
		out := try.Get(c.New(0, c.In[2].DType, shape))
		fill(out.Data, 0, out.Len(), c.In[2].Data, 0)
		inner, move := product(in[ax:]), movesOf(out.Data)
		for i, n := 0, c.In[0].Len(); i < n; i++ {
			f := math.Trunc(c.In[0].At(i))
			if f < 0 {
				f += d
			}
			// Index i has its place f at element (i / inner · depth + f) inner + i mod inner. A NaN
			// index fails both comparisons and points nowhere.
			if f >= 0 && f < d {
				move.copy(out.Data, (i/inner*depth+int(f))*inner+i%inner, c.In[2].Data, 1, 1)
			}
		}
		return nil
	}, nil
}
