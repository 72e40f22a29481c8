package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx/internal/try"
)

// TensorScatter writes an update into a cache of keys or values: mode linear or circular, axis = -2
// (not 0); cache [batch, ..., max, ...], update the same but for [..., n, ...] on axis, positions
// write_indices + 0..n-1 of each sample (from 0 where they are left out). In mode circular
// positions wrap around the axis; in linear an update beyond its end is an error. The cache is
// copied, as its caller may keep it.
func newTensorScatter(s *Spec) (Kernel, error) {
	axis, mode := s.int("axis"), s.str("mode")
	return func(c *Call) error {
		cache, update := c.In[0], c.In[1]
		ax := try.Get(axisOf(axis, len(cache.Shape)))
		want := slices.Clone(cache.Shape)
		// The update has the cache's shape but for the axis, where its own size n counts.
		if ax > 0 && len(update.Shape) == len(want) {
			want[ax] = update.Shape[ax]
		}
		if ax == 0 || !slices.Equal(want, update.Shape) || want[ax] > cache.Shape[ax] {
			return fmt.Errorf("an update of shape %v for a cache of shape %v on axis %d",
				update.Shape, cache.Shape, ax)
		}
		first := make([]int, want[0])
		if t := c.in(2); t != nil {
			first = try.Get(ints(t))
		}
		size, n := cache.Shape[ax], want[ax]
		if len(first) != want[0] || slices.ContainsFunc(first,
			func(f int) bool { return f < 0 || mode == "linear" && f > size-n }) {
			return fmt.Errorf(
				"write_indices %v for %d samples, a cache of %d positions and an update of %d",
				first, want[0], size, n)
		}
		out := try.Get(c.New(0, cache.DType, cache.Shape))
		Copy(out, cache)
		inner, rows := product(want[ax+1:]), product(want[1:ax])
		for b, f := range first {
			for r := b * rows; r < (b+1)*rows; r++ {
				for k := range n {
					// f is reduced before k is added, so that a large index cannot overflow the
					// sum.
					copyRange(out.Data, (r*size+(f%size+k)%size)*inner, update.Data,
						(r*n+k)*inner, inner)
				}
			}
		}
		return nil
	}, nil
}
