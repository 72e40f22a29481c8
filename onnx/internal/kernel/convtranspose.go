package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// ConvTranspose: group = 1, output_padding = 0, window attributes as in newWindow; x [n, ci,
// in...], w [ci, co/group, size...], b [co]:
//
//	out_k = stride_k (in_k - 1) + output_padding_k + extent_k - begin_k - end_k
//
// or output_shape, which settles the padding: an excess is cut evenly, the odd one at the end
// (SAME_LOWER: at the beginning) where auto_pad is SAME_UPPER, else the other way round.
func init() {
	register(Def{Op: "ConvTranspose", Since: 1, Half: true, New: newConvTranspose})
}

// transposedConv holds the attributes of a ConvTranspose; outSize is output_shape, nil where it is
// left out.
type transposedConv struct {
	window
	group   int
	outPad  []int
	outSize []int
}

// newConvTranspose reads output_padding, which adds to the output's end alone.
func newConvTranspose(s *Spec) (Kernel, error) {
	w, group := newGroups(s)
	t := transposedConv{window: w, group: group, outPad: s.ints("output_padding"),
		outSize: s.ints("output_shape")}
	return numeric(s, convTranspose[float32](t), convTranspose[float64](t))
}

// fitTransposed completes the window for inputs of these spatial sizes and returns the output's
// sizes, as the equations above have them. t is not changed: the window that comes back is a copy
// for this call.
func (t transposedConv) fitTransposed(in, size []int) (window, []int, error) {
	r := len(in)
	w := t.window
	if w.size != nil && !slices.Equal(w.size, size) {
		return w, nil, fmt.Errorf("kernel_shape %v differs from the weights' %v", w.size, size)
	}
	w.size = size
	outPad := t.outPad
	for _, v := range []*[]int{&w.stride, &w.dilation, &w.begin, &w.end, &outPad} {
		if len(*v) == 0 {
			*v = nil
		}
	}
	if err := w.complete(r, &outPad); err != nil {
		return w, nil, err
	}
	out := make([]int, r)
	sizes := t.outSize
	// An output_shape with the batch and the channels in front is taken too.
	if len(sizes) > r {
		sizes = sizes[len(sizes)-r:]
	}
	if sizes != nil && len(sizes) != r {
		return w, nil, fmt.Errorf("output_shape %v for %d spatial axes", t.outSize, r)
	}
	for k := range in {
		// In 64 bits, so that hostile attributes cannot overflow before the bound is checked.
		wide := int64(w.stride[k])*int64(in[k]-1) + int64(outPad[k]) +
			int64(w.dilation[k])*int64(w.size[k]-1) + 1
		if wide > onnx.MaxElements {
			return w, nil, fmt.Errorf(
				"the output would have size %d on spatial axis %d; allowed are up to %d", wide, k,
				onnx.MaxElements)
		}
		full := int(wide)
		same := w.autoPad == "SAME_UPPER" || w.autoPad == "SAME_LOWER"
		switch {
		case sizes != nil || same:
			out[k] = in[k] * w.stride[k]
			if sizes != nil {
				out[k] = sizes[k]
			}
			total := max(0, full-out[k])
			if w.autoPad == "SAME_UPPER" {
				w.begin[k], w.end[k] = total/2, total-total/2
			} else {
				w.begin[k], w.end[k] = total-total/2, total/2
			}
		default:
			out[k] = full - w.begin[k] - w.end[k]
		}
		if out[k] < 0 {
			return w, nil, fmt.Errorf("the output would have size %d on spatial axis %d", out[k], k)
		}
	}
	return w, out, nil
}

// convTranspose multiplies wᵀ [co/group · taps, ci/group] by x [ci/group, in] for each group of an
// image. It adds the columns to the output where their taps lie. The columns of one group take
// co/group · taps · in numbers of scratch memory for each thread. No two threads write one output,
// since each has images and groups of its own.
func convTranspose[T floating](t transposedConv) Kernel {
	return func(c *Call) error {
		xs, ws := c.In[0].Shape, c.In[1].Shape
		if len(xs) < 3 || len(ws) != len(xs) || xs[1] != ws[0] || ws[0]%t.group != 0 {
			return fmt.Errorf("input %v, weights %v and group %d do not match", xs, ws, t.group)
		}
		w, sp := try.Get2(t.fitTransposed(xs[2:], ws[2:]))
		var bias []T
		if b := c.in(2); b != nil {
			if b.Len() != ws[1]*t.group {
				return fmt.Errorf("bias has %d elements for %d output channels", b.Len(),
					ws[1]*t.group)
			}
			bias = data[T](b)
		}
		out := try.Get(c.New(0, c.In[0].DType, append([]int{xs[0], ws[1] * t.group}, sp...)))
		x, wt, o := data[T](c.In[0]), data[T](c.In[1]), data[T](out)
		cg, og := ws[0]/t.group, ws[1]
		in, pos, q := product(xs[2:]), product(sp), product(w.size)
		c.Parallel(xs[0]*t.group, work(cg, og, q, in)/4, func(lo, hi int) {
			col := scratch[T](c, og, q, in)
			for item := lo; item < hi; item++ {
				g := item % t.group
				clear(col)
				// col [og q, in] = w' [og q, cg] x [cg, in]
				weights := matrix[T]{data: wt[g*cg*og*q : (g+1)*cg*og*q], rows: og * q, cols: cg,
					stride: max(1, og*q), trans: true}
				multiply(weights, dense(x[item*cg*in:(item+1)*cg*in], cg, in), dense(col, og*q, in),
					c.env.Reproducible)
				for ch := 0; ch < og; ch++ {
					dst := o[(item*og+ch)*pos : (item*og+ch+1)*pos]
					clear(dst)
					if bias != nil {
						fillRange(dst, bias[g*og+ch])
					}
					addColumns(dst, col[ch*q*in:(ch+1)*q*in], w, sp, xs[2:])
				}
			}
		})
		return nil
	}
}
