package shape

import (
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// inferGather puts the axes of the indices in the place of the gathered one. On an axis of size n
// known indices must be from -n to n-1. Elements of a vector that is followed are followed. Shape
// followed by Gather is how exporters read one size, which is why elements are followed. A known
// index that is out of range is an error, although a run might never reach the node.
func inferGather(c *call, x *fact) []expr {
	idx := c.in[1]
	a := try.Get(axis(c.attrs.Int("axis"), len(x.shape)))
	if size, ok := x.shape[a].value(); ok {
		for _, e := range idx.data {
			if v, ok := e.value(); ok && (v < -size || v >= size) {
				try.Fail("index %d on axis %d of size %d", v, a, size)
			}
		}
	}
	if !idx.ranked() {
		return nil
	}
	if x.data != nil && len(x.shape) == 1 && idx.data != nil {
		data := make([]expr, len(idx.data))
		for i, e := range idx.data {
			if v, ok := e.value(); ok {
				if v < 0 {
					// A negative index counts from the end, and was found to be in range above.
					v += len(x.data)
				}
				data[i] = x.data[v]
			}
		}
		c.follow(data)
	}
	return slices.Replace(slices.Clone(x.shape), a, a+1, idx.shape...)
}

// inferGatherElements: the output has the shape of the indices, whose rank is the data's.
func inferGatherElements(c *call) {
	x, idx := c.in[0], c.in[1]
	if x.ranked() && idx.ranked() && len(x.shape) != len(idx.shape) {
		try.Fail("data and indices are of rank %d and %d; they must be the same",
			len(x.shape), len(idx.shape))
	}
	if x.ranked() {
		try.Get(axis(c.attrs.Int("axis"), len(x.shape)))
	}
	c.set(0, x.dtype, idx.shape)
}

// inferGatherND: indices [i..., k] with b batch axes give the sizes i..., and then those of x's
// axes from b + k on. The last axis of the indices must be known, since it tells the rank of the
// result.
func inferGatherND(c *call, x *fact) []expr {
	idx := c.in[1]
	if len(idx.shape) == 0 {
		return nil
	}
	last, ok := idx.shape[len(idx.shape)-1].value()
	if !ok {
		return nil
	}
	b := c.attrs.Int("batch_dims")
	if b < 0 || b+last > len(x.shape) || b >= len(idx.shape) {
		try.Fail("indices of %d axes after %d of the batch, in data of rank %d", last,
			b, len(x.shape))
	}
	return append(slices.Clone(idx.shape[:len(idx.shape)-1]), x.shape[b+last:]...)
}

// chosen sets the first output to n elements or, where there is an axis, to n along that axis,
// which is returned; -1 without one. Without an axis the value is flattened first, so that the
// result is a vector whatever the rank.
func (c *call) chosen(n expr) int {
	x := c.in[0]
	c.set(0, x.dtype, []expr{n})
	if _, ok := c.node.Attr("axis"); !ok {
		return -1
	}
	c.set(0, x.dtype, nil)
	if !x.ranked() {
		return -1
	}
	a := try.Get(axis(c.attrs.Int("axis"), len(x.shape)))
	c.same(0, x)
	c.out[0].shape[a] = n
	return a
}

// inferUnique: values, first positions, the place of each element among the values, and counts.
// Only a run tells the number n of different values. The third output has one entry for each slice
// along the axis, or each element where there is none.
func inferUnique(c *call) {
	n := c.inf.unknownSize()
	c.set(1, onnx.Int64, []expr{n})
	c.set(2, onnx.Int64, []expr{c.inf.unknownSize()})
	c.set(3, onnx.Int64, []expr{n})
	if a := c.chosen(n); a >= 0 {
		c.set(2, onnx.Int64, []expr{c.in[0].shape[a]})
	}
}
