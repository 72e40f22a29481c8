package kernel

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/op"
)

// WithPadding returns the node of s, a convolution or pooling, with the work of a padding before
// it, one that [Prepare] took, in its pads; nil where the results could differ:
//
//   - A convolution of known weights takes zeros, and so does a mean, which counts them from then
//     on.
//   - A maximum takes negative infinities, where every window holds more than them.
//
// Neither node is changed; the new one reads the padding's input.
func WithPadding(s, pad *Spec) *onnx.Node {
	n := s.Node
	attrs := op.Attrs(n, s.Opset)
	size, fill := s.window(attrs)
	axes := len(size)
	if n.Domain != "" || axes < 1 {
		return nil
	}
	w, err := op.WindowOf(attrs, axes, size)
	more := pad.spatial(axes, fill)
	if err != nil || more == nil || w.AutoPad != "NOTSET" && w.AutoPad != "VALID" {
		return nil
	}
	for i, p := range w.Pads {
		more[i] += p
		if more[i] > maxPad || n.Op == "MaxPool" &&
			(more[i] >= w.Kernel[i%axes] || w.Dilations[i%axes] != 1) ||
			n.Op == "AveragePool" && p != 0 && !attrs.Bool("count_include_pad") {
			return nil
		}
	}
	out := onnx.CloneNode(n)
	out.Attrs = slices.DeleteFunc(out.Attrs, func(a onnx.Attr) bool {
		return a.Name == "pads" || a.Name == "auto_pad" || n.Op == "AveragePool" &&
			a.Name == "count_include_pad"
	})
	out.Attrs = append(out.Attrs, onnx.IntsAttr("pads", more...))
	if n.Op == "AveragePool" {
		out.Attrs = append(out.Attrs, onnx.IntAttr("count_include_pad", 1))
	}
	out.Inputs[0] = pad.Node.Inputs[0]
	return out
}

// window returns the extents of the window of an operator that may take padding over, and the
// number that it pads with; none of others.
func (s *Spec) window(attrs op.Values) (size []int, fill float64) {
	n := s.Node
	switch n.Op {
	case "Conv":
		if w := s.constant(1); w != nil && allFinite(w) {
			size = w.Shape[min(2, len(w.Shape)):]
		}
	case "AveragePool":
		if s.Opset >= 7 && !attrs.Bool("ceil_mode") {
			size = attrs.Ints("kernel_shape")
		}
	case "MaxPool":
		if fill = math.Inf(-1); len(n.Outputs) == 1 && !attrs.Bool("ceil_mode") {
			size = attrs.Ints("kernel_shape")
		}
	}
	return size, fill
}

// maxPad bounds the padding of one end of an axis.
const maxPad = 1 << 20

// spatial returns how many elements a Pad adds before and behind each axis from the third on. It
// returns nil where the Pad cuts, adds to the first two axes, adds anything but fill, or is not
// known.
func (s *Spec) spatial(axes int, fill float64) []int {
	if s.str("mode") != "constant" {
		return nil
	}
	pads, value := s.ints("pads"), s.float("value")
	var on []int
	if s.Opset >= 11 {
		v, a, known := s.constant(2), s.constant(3), s.constant(1)
		if known == nil || s.has(2) && (v == nil || v.Len() != 1) || s.has(3) && a == nil {
			return nil
		}
		var err, none error
		pads, err = ints(known)
		if value = 0; v != nil {
			value = v.At(0)
		}
		if a != nil {
			on, none = ints(a)
		}
		if err != nil || none != nil {
			return nil
		}
	}
	begin, size, err := padding(make([]int, axes+2), pads, on)
	// Bits are compared, as a padding by -0 is not one by 0.
	if err != nil || math.Float64bits(value) != math.Float64bits(fill) {
		return nil
	}
	out := make([]int, 2*axes)
	for k, b := range begin { // of an axis of nothing, size is both ends together
		end := size[k] - b
		if b < 0 || end < 0 || k < 2 && size[k] > 0 {
			return nil
		}
		if k >= 2 {
			out[k-2], out[axes+k-2] = b, end
		}
	}
	return out
}

// allFinite reports whether a tensor holds neither infinities nor NaNs: zeros times its elements
// are zeros.
func allFinite(t *onnx.Tensor) bool {
	switch v := t.Data.(type) {
	case []float32:
		return finite(dense(v, 1, len(v)))
	case []float64:
		return finite(dense(v, 1, len(v)))
	case []int8, []uint8:
		return bytes.Has(t.DType)
	}
	return false
}
