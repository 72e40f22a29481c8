package kernel

import (
	"cmp"
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// TopK: axis = -1, largest = 1, sorted = 1 (results are always sorted); k an attribute before opset
// 10; out_axis = k. Among equals the lower index comes first.
func init() {
	register(
		Def{Op: "TopK", Since: 1, Until: 9, Half: true, New: newTopKByAttribute},
		Def{Op: "TopK", Since: 10, Half: true, New: newTopK},
	)
}

// newTopKByAttribute is TopK before operator set 10: the largest k, with k fixed by the node.
func newTopKByAttribute(s *Spec) (Kernel, error) {
	axis, k := s.int("axis"), s.int("k")
	count := func(*Call) int { return k }
	return numeric(s, topK[float32](axis, true, count), topK[float64](axis, true, count))
}

// newTopK reads k at every call. Results that come sorted meet sorted = 0 too, which leaves the
// order open.
func newTopK(s *Spec) (Kernel, error) {
	axis, largest := s.int("axis"), true
	if s.Opset >= 11 {
		largest = s.bool("largest")
		s.ignore("sorted")
	}
	count := func(c *Call) int { return whole(c.In[1], "k") }
	return numeric(s, topK[float32](axis, largest, count), topK[float64](axis, largest, count),
		topK[int64](axis, largest, count), topK[uint64](axis, largest, count))
}

// topK sorts every line, stably: O(n log n) a line of n. Lines run along the axis, so that
// neighbours of a line are `inner` elements apart. A whole sort serves any k; a heap would save
// time only where k is far below n. NaN counts as the least of all numbers, as cmp.Compare has it.
func topK[T number](axis int, largest bool, count func(*Call) int) Kernel {
	return func(c *Call) error {
		in := c.In[0].Shape
		ax := try.Get(axisOf(axis, len(in)))
		k := count(c)
		if k < 0 || k > in[ax] {
			return fmt.Errorf("k = %d of an axis of size %d", k, in[ax])
		}
		shape := append([]int{}, in...)
		shape[ax] = k
		values := try.Get(c.New(0, c.In[0].DType, shape))
		indices := try.Get(c.New(1, onnx.Int64, shape))
		x, v, id := data[T](c.In[0]), data[T](values), indices.I64()
		n, inner := in[ax], product(in[ax+1:])
		// One list of positions serves all lines, and is set anew for each.
		order := make([]int, n)
		for l, lines := 0, product(in[:ax])*inner; l < lines; l++ {
			// Line l of the input begins here: l/inner counts the axes before, l%inner those
			// behind.
			base := l/inner*n*inner + l%inner
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(i, j int) int {
				d := cmp.Compare(x[base+i*inner], x[base+j*inner])
				if largest {
					return -d
				}
				return d
			})
			for j := 0; j < k; j++ {
				o := l/inner*k*inner + l%inner + j*inner
				v[o], id[o] = x[base+order[j]*inner], int64(order[j])
			}
		}
		return nil
	}
}
