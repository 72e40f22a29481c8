package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx/internal/try"
)

// window is how a kernel slides over spatial axes: Conv, ConvTranspose and the poolings.
type window struct {
	size, stride, dilation []int
	begin, end             []int // padding; worked out from autoPad when the input's shape is known
	autoPad                string
	ceil                   bool
	counted                bool // a mean counts its padding
}

// maxExtent bounds the positions between the first and the last that a window sees.
const maxExtent = 1 << 28

// maxSide bounds a window's size, stride and dilation along an axis.
const maxSide = 1 << 20

// newWindow reads auto_pad (NOTSET), kernel_shape, strides (1), dilations (1), pads (0). Without a
// kernel_shape attribute the size comes from the weights when the model runs. It ends by package
// try on attributes that contradict each other or are out of range. SAME_UPPER puts an odd padding
// at the end, SAME_LOWER at the beginning.
func newWindow(s *Spec) window {
	w := window{autoPad: s.str("auto_pad"), size: s.ints("kernel_shape"), stride: s.ints("strides"),
		dilation: s.ints("dilations")}
	pads := s.ints("pads")
	if len(pads)%2 != 0 {
		try.Fail("pads %v: a begin and an end for each axis are expected", pads)
	}
	switch w.autoPad {
	case "NOTSET", "":
		w.autoPad = "NOTSET"
	case "VALID", "SAME_UPPER", "SAME_LOWER":
		for _, p := range pads {
			if p != 0 {
				try.Fail("auto_pad %s and pads %v are given together", w.autoPad, pads)
			}
		}
		pads = nil
	default:
		try.Fail("auto_pad %q is not one of NOTSET, VALID, SAME_UPPER, SAME_LOWER", w.autoPad)
	}
	for _, v := range [][]int{w.size, w.stride, w.dilation} {
		for _, x := range v {
			if x < 1 || x > maxSide {
				try.Fail("kernel_shape %v, strides %v, dilations %v: each must be 1 to %d",
					w.size, w.stride, w.dilation, maxSide)
			}
		}
	}
	for _, p := range pads {
		if p < 0 || p > maxPad {
			try.Fail("pads %v: each must be 0 to %d", pads, maxPad)
		}
	}
	w.begin, w.end = pads[:len(pads)/2], pads[len(pads)/2:]
	return w
}

// complete sets the lists that are nil, with the padding of an output, to their defaults for r
// axes, and copies the others.
func (w *window) complete(r int, outPad *[]int) error {
	for _, f := range []struct {
		v *[]int
		d int
	}{{&w.size, 1}, {&w.stride, 1}, {&w.dilation, 1}, {&w.begin, 0}, {&w.end, 0}, {outPad, 0}} {
		v := slices.Clone(*f.v)
		if v == nil {
			v = slices.Repeat([]int{f.d}, r)
		}
		if len(v) != r {
			return fmt.Errorf("%v has %d entries for %d spatial axes", v, len(v), r)
		}
		*f.v = v
	}
	return nil
}

// fit completes the window for an input with these spatial sizes:
//
//	extent_k = dilation_k (size_k - 1) + 1
//	out_k    = floor((in_k + begin_k + end_k - extent_k) / stride_k) + 1          (ceil where ceil_mode)
//	SAME:      out_k = ceil(in_k / stride_k), begin_k + end_k = max(0, (out_k - 1) stride_k + extent_k - in_k)
//
// w itself and its lists are not changed. A window that does not fit once into the padded axis is
// an error, unless ceil_mode lets it pass the end.
func (w window) fit(in []int) (window, []int, error) {
	if len(w.begin) == 0 {
		w.begin, w.end = nil, nil
	}
	if err := w.complete(len(in), new([]int)); err != nil {
		return w, nil, err
	}
	out := make([]int, len(in))
	for k := range in {
		if int64(w.dilation[k])*int64(w.size[k]-1) > maxExtent {
			return w, nil, fmt.Errorf("a window of %d with dilation %d reaches further than %d",
				w.size[k], w.dilation[k], maxExtent)
		}
		ext := w.dilation[k]*(w.size[k]-1) + 1
		if w.autoPad == "SAME_UPPER" || w.autoPad == "SAME_LOWER" {
			out[k] = (in[k] + w.stride[k] - 1) / w.stride[k]
			total := max(0, (out[k]-1)*w.stride[k]+ext-in[k])
			w.begin[k], w.end[k] = total/2, total-total/2
			if w.autoPad == "SAME_LOWER" {
				w.begin[k], w.end[k] = w.end[k], w.begin[k]
			}
			continue
		}
		room := in[k] + w.begin[k] + w.end[k] - ext
		// one window, of which the end is beyond the padding
		if w.ceil && room < 0 && room > -w.stride[k] && in[k] > 0 {
			out[k] = 1
			continue
		}
		if room < 0 {
			return w, nil, fmt.Errorf("a window of %d does not fit an axis of size %d padded by %d and %d",
				ext, in[k], w.begin[k], w.end[k])
		}
		out[k] = room/w.stride[k] + 1
		if w.ceil && room%w.stride[k] != 0 {
			out[k]++
			// A window that would start in the padding at the end is dropped.
			if (out[k]-1)*w.stride[k] >= in[k]+w.begin[k] {
				out[k]--
			}
		}
	}
	return w, out, nil
}

// taps are those of the window at output position p that lie on axis k, of n elements: from first up
// to end, which is not one of them. start is the position of tap 0, which may lie before the axis.
func (w *window) taps(k, p, n int) (start, first, end int) {
	start = p*w.stride[k] - w.begin[k]
	d := w.dilation[k]
	return start, max(0, (d-1-start)/d), min(w.size[k], (n-start+d-1)/d)
}
