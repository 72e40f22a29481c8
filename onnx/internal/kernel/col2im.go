package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx/internal/try"
)

// Col2Im: dilations = 1, pads = 0, strides = 1. x [n, c k, l] holds c channels of blocks of k =
// prod block_shape elements at l positions of a window over the padded image; y [n, c,
// image_shape...] is the sum of all blocks at their places, without the padding.
//
//	y[n, c, p] = sum x[n, c k + j, w] over p_i = w_i stride_i + j_i dilation_i - pad_i
//	l = prod_i floor((image_i + pad_i + pad_{i+d} - dilation_i (block_i - 1) - 1) / stride_i + 1)
func newCol2Im(s *Spec) (Kernel, error) {
	w := newWindow(s)
	return numeric(s, columnsToImage[float32](w), columnsToImage[float64](w))
}

// columnsToImage reads image and block shapes at each call. Threads divide channels, so that no two
// add to one element.
func columnsToImage[T floating](w window) Kernel {
	return func(c *Call) error {
		in := c.In[0].Shape
		image := try.Get(ints(c.In[1]))
		block := try.Get(ints(c.In[2]))
		for _, v := range append(slices.Clone(image), block...) {
			if v < 1 || v > maxExtent {
				return fmt.Errorf("a block of shape %v or an image of shape %v is out of range",
					block, image)
			}
		}
		// A copy is fitted for each call, so that calls may run at a time.
		w := w
		w.size = block
		w, count := try.Get2(w.fit(image))
		k, l := work(block...), work(count...)
		if len(in) != 3 || in[1]%k != 0 || in[2] != l {
			return fmt.Errorf(
				"columns of shape %v where [n, a multiple of %d, %d] is expected: blocks %v at %v positions",
				in, k, l, block, count)
		}
		out := try.Get(c.New(0, c.In[0].DType, append([]int{in[0], in[1] / k}, image...)))
		clearData(out)
		x, y, size := data[T](c.In[0]), data[T](out), product(image)
		c.Parallel(in[0]*in[1]/k, work(k, l), func(lo, hi int) {
			for ch := lo; ch < hi; ch++ {
				addColumns(y[ch*size:][:size], x[ch*k*l:][:k*l], w, image, count)
			}
		})
		return nil
	}
}

// addColumns adds columns [taps, positions] to a plane of shape image, each element where its tap
// of the window lies at its position; those in the padding are left out. It is the transpose of
// im2col. It adds tap by tap and position by position, in one order for any number of threads:
// O(taps · positions · axes).
func addColumns[T floating](plane, columns []T, w window, image, count []int) {
	tap, at := make([]int, len(image)), make([]int, len(image))
	positions := product(count)
	for t := range product(w.size) {
		// Taps and positions count in row-major order, the last axis fastest.
		unravel(tap, t, w.size)
	positions:
		for p, v := range columns[t*positions:][:positions] {
			unravel(at, p, count)
			off := 0
			for i := range at {
				y := at[i]*w.stride[i] + tap[i]*w.dilation[i] - w.begin[i]
				if y < 0 || y >= image[i] {
					continue positions
				}
				off = off*image[i] + y
			}
			plane[off] += v
		}
	}
}
