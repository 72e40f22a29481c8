package shape

import (
	"fmt"
	"slices"

	"fmp/onnx"
)

func inferGather(c *call, x *fact) ([]expr, error) {
	idx := c.in[1]
	a, err := axis(c.attrs.Int("axis"), len(x.shape))
	if err != nil {
		return nil, err
	}
	if size, ok := x.shape[a].value(); ok {
		for _, e := range idx.data {
			if v, ok := e.value(); ok && (v < -size || v >= size) {
				return nil, fmt.Errorf("index %d on axis %d of size %d", v, a, size)
			}
		}
	}
	if !idx.ranked() {
		return nil, nil
	}
	if x.data != nil && len(x.shape) == 1 && idx.data != nil {
		data := make([]expr, len(idx.data))
		for i, e := range idx.data {
			if v, ok := e.value(); ok {
				if v < 0 {
					v += len(x.data)
				}
				data[i] = x.data[v]
			}
		}
		c.follow(data)
	}
	return slices.Replace(slices.Clone(x.shape), a, a+1, idx.shape...), nil
}

func inferGatherElements(c *call) error {
	x, idx := c.in[0], c.in[1]
	if x.ranked() && idx.ranked() && len(x.shape) != len(idx.shape) {
		return fmt.Errorf("data and indices are of rank %d and %d; they must be the same",
			len(x.shape), len(idx.shape))
	}
	if x.ranked() {
		if _, err := axis(c.attrs.Int("axis"), len(x.shape)); err != nil {
			return err
		}
	}
	c.set(0, x.dtype, idx.shape)
	return nil
}

func inferGatherND(c *call, x *fact) ([]expr, error) {
	idx := c.in[1]
	if len(idx.shape) == 0 {
		return nil, nil
	}
	last, ok := idx.shape[len(idx.shape)-1].value()
	if !ok {
		return nil, nil
	}
	b := c.attrs.Int("batch_dims")
	if b < 0 || b+last > len(x.shape) || b >= len(idx.shape) {
		return nil, fmt.Errorf("indices of %d axes after %d of the batch, in data of rank %d", last,
			b, len(x.shape))
	}
	return append(slices.Clone(idx.shape[:len(idx.shape)-1]), x.shape[b+last:]...), nil
}

func inferCompress(c *call) error {
	_, err := c.chosen(c.inf.unknownSize())
	return err
}

// chosen sets the first output to n elements or, where there is an axis, to n along that axis,
// which is returned; -1 without one.
func (c *call) chosen(n expr) (int, error) {
	x := c.in[0]
	c.set(0, x.dtype, []expr{n})
	if _, ok := c.node.Attr("axis"); !ok {
		return -1, nil
	}
	c.set(0, x.dtype, nil)
	if !x.ranked() {
		return -1, nil
	}
	a, err := axis(c.attrs.Int("axis"), len(x.shape))
	if err != nil {
		return -1, err
	}
	c.same(0, x)
	c.out[0].shape[a] = n
	return a, nil
}

// inferNonMaxSuppression: as many [batch, class, box] as are chosen.
func inferNonMaxSuppression(c *call) error {
	c.set(0, onnx.Int64, []expr{c.inf.unknownSize(), constant(3)})
	return nil
}

func inferUnique(c *call) error {
	n := c.inf.unknownSize()
	c.set(1, onnx.Int64, []expr{n})
	c.set(2, onnx.Int64, []expr{c.inf.unknownSize()})
	c.set(3, onnx.Int64, []expr{n})
	a, err := c.chosen(n)
	if a >= 0 {
		c.set(2, onnx.Int64, []expr{c.in[0].shape[a]})
	}
	return err
}
