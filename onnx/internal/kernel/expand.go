package kernel

import (
	"fmt"

	"fmp/onnx/internal/try"
)

// Expand: out = broadcast(in, shape). Tile: out_k = in_k repeats_k.
func init() {
	register(
		Def{Op: "Expand", Since: 8, New: newExpand},
		Def{Op: "Tile", Since: 6, New: newTile},
	)
}

// newExpand: a size of 1 in `shape` keeps the input's, since broadcasting goes both ways. The
// result may thus be larger than `shape` says.
func newExpand(*Spec) (Kernel, error) {
	return func(c *Call) error {
		dims := try.Get(ints(c.In[1]))
		// Expand has no -1 for a size that is inferred, as Reshape has.
		for _, d := range dims {
			if d < 0 {
				return fmt.Errorf("shape %v has a negative size", dims)
			}
		}
		shape := try.Get(broadcast(c.In[0].Shape, dims))
		out := try.Get(c.New(0, c.In[0].DType, shape))
		gather(c, out, c.In[0], 0, broadcastStrides(c.In[0].Shape, shape))
		return nil
	}, nil
}

// newTile reads the output as [repeats_0, d_0, repeats_1, d_1, ...] and broadcasts the input into
// it. Element (r_0, i_0, r_1, i_1, ...) is in[i_0, i_1, ...]. It costs O(elements of the output).
func newTile(*Spec) (Kernel, error) {
	return func(c *Call) error {
		repeats := try.Get(ints(c.In[1]))
		in := c.In[0].Shape
		if len(repeats) != len(in) {
			return fmt.Errorf("repeats %v for a tensor of rank %d", repeats, len(in))
		}
		// Each axis becomes two, [repeats_k, in_k], of which the first has stride 0.
		shape, st := make([]int, len(in)), strides(in)
		var dims, stride []int
		for k, d := range in {
			// So bounded, d · repeats_k cannot overflow before the result's size is checked.
			if repeats[k] < 0 || (d > 0 && int64(repeats[k]) > maxTensorBytes/int64(d)) {
				return fmt.Errorf("repeats %v is out of range for shape %v", repeats, in)
			}
			shape[k] = d * repeats[k]
			dims, stride = append(dims, repeats[k], d), append(stride, 0, st[k])
		}
		out := try.Get(c.New(0, c.In[0].DType, shape))
		// wide is out's own memory, read as [repeats_0, in_0, repeats_1, in_1, ...].
		wide := try.Get(out.Reshape(dims...))
		gather(c, wide, c.In[0], 0, stride)
		return nil
	}, nil
}
