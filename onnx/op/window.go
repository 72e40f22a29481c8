package op

import (
	"cmp"
	"fmt"
	"slices"
)

// Window holds the attributes of a convolution or pooling along its spatial axes, with defaults
// filled in. Pads holds the beginnings of all axes, then their ends.
type Window struct {
	Kernel, Strides, Dilations, Pads []int
	AutoPad                          string // NOTSET, VALID, SAME_UPPER or SAME_LOWER
	CeilMode                         bool
}

// WindowOf reads the window of a Conv, ConvTranspose or pooling over n spatial axes; kernel is the
// spatial shape of the weight, or nil for a pooling, whose kernel_shape is an attribute. An error
// names the attribute that has another length than n asks for, is out of range, or differs from
// kernel. The lists may be shared with the caller's kernel.
func WindowOf(attrs Values, n int, kernel []int) (Window, error) {
	list := func(name string, length, otherwise int) []int {
		if attrs.Has(name) {
			return attrs.Ints(name)
		}
		return slices.Repeat([]int{otherwise}, length)
	}
	w := Window{
		Kernel: kernel, Strides: list("strides", n, 1), Dilations: list("dilations", n, 1),
		Pads:    list("pads", 2*n, 0),
		AutoPad: cmp.Or(attrs.Str("auto_pad"), "NOTSET"), CeilMode: attrs.Bool("ceil_mode"),
	}
	if attrs.Has("kernel_shape") {
		w.Kernel = attrs.Ints("kernel_shape")
	}
	for _, a := range []struct {
		name string
		v    []int
		want int
		low  int
	}{{"kernel_shape", w.Kernel, n, 1}, {"strides", w.Strides, n, 1}, {"dilations", w.Dilations, n, 1},
		{"pads", w.Pads, 2 * n, 0}} {
		if len(a.v) != a.want {
			return w, fmt.Errorf("%s %v for %d spatial axes; %d numbers are needed", a.name,
				a.v, n, a.want)
		}
		for _, v := range a.v {
			if v < a.low || v > 1<<28 {
				return w, fmt.Errorf("%s %v holds %d; at least %d is allowed", a.name,
					a.v, v, a.low)
			}
		}
	}
	for i := range n {
		if int64(w.Kernel[i]-1)*int64(w.Dilations[i]) > 1<<28 {
			return w, fmt.Errorf("kernel_shape %v with dilations %v spans more than %d positions",
				w.Kernel, w.Dilations, 1<<28)
		}
	}
	if len(kernel) == n {
		for i := range kernel {
			if w.Kernel[i] != kernel[i] {
				return w, fmt.Errorf("kernel_shape %v and a weight of %v differ", w.Kernel, kernel)
			}
		}
	}
	return w, nil
}

// Extent returns the number of input positions that the kernel spans on axis i. [WindowOf] holds it
// to 2^28 + 1.
func (w Window) Extent(i int) int { return (w.Kernel[i]-1)*w.Dilations[i] + 1 }

// SamePads returns the begin and end padding of auto_pad SAME_UPPER or SAME_LOWER for axis i of
// size in. Together they are max(0, (ceil(in / stride) - 1) stride + extent - in); an odd one is at
// the end, with SAME_LOWER at the beginning.
func (w Window) SamePads(in, i int) (begin, end int) {
	s := w.Strides[i]
	total := max(0, ((in+s-1)/s-1)*s+w.Extent(i)-in)
	if w.AutoPad == "SAME_LOWER" {
		return total - total/2, total / 2
	}
	return total / 2, total - total/2
}
