package kernel

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// ArgMax, ArgMin: axis = 0, keepdims = 1, select_last_index = 0; out_axis = 1 (dropped where
// keepdims = 0).
func init() {
	register(
		Def{Op: "ArgMax", Since: 1, Half: true, New: newArg(true)},
		Def{Op: "ArgMin", Since: 1, Half: true, New: newArg(false)},
	)
}

// newArg: the last index of equals may be asked for from operator set 12 on.
func newArg(largest bool) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		axis, keep, last := s.int("axis"), s.bool("keepdims"), false
		if s.Opset >= 12 {
			last = s.bool("select_last_index")
		}
		return numeric(s, arg[float32](axis, keep, last, largest),
			arg[float64](axis, keep, last, largest), arg[int64](axis, keep, last, largest),
			arg[uint64](axis, keep, last, largest))
	}
}

// arg gives the index of the largest or the smallest element of each line along an axis. Among
// equals it is the first, or the last where that is asked for. No comparison with NaN holds, so
// that one wins only where it stands first. It costs O(elements of x), on one thread.
func arg[T number](axis int, keep, last, largest bool) Kernel {
	return func(c *Call) error {
		in := c.In[0].Shape
		ax := try.Get(axisOf(axis, len(in)))
		// Without lines there is nothing to find, and an empty output is right.
		if in[ax] == 0 && product(in[:ax])*product(in[ax+1:]) > 0 {
			return fmt.Errorf("axis %d of shape %v is empty", ax, in)
		}
		p := planReduce(in, []int{ax})
		out := try.Get(c.New(0, onnx.Int64, p.shape(keep)))
		x, o, step := data[T](c.In[0]), out.I64(), strides(in)[ax]
		for i := range o {
			b := p.base(i)
			best := 0
			for k := 1; k < in[ax]; k++ {
				v, w := x[b+k*step], x[b+best*step]
				if largest && v > w || !largest && v < w || last && v == w {
					best = k
				}
			}
			o[i] = int64(best)
		}
		return nil
	}
}
