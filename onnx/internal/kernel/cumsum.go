package kernel

import "fmp/onnx/internal/try"

// CumSum and CumProd: exclusive = 0, reverse = 0; running sums and products along the axis in input
// 1.
func init() {
	register(
		Def{Op: "CumSum", Since: 11, Half: true, New: newCumulative},
		Def{Op: "CumProd", Since: 26, Half: true, New: newCumulative},
	)
}

// newCumulative serves both operators; narrow integers are computed in 64 bits and cut.
func newCumulative(s *Spec) (Kernel, error) {
	exclusive, reverse, product := s.bool("exclusive"), s.bool("reverse"), s.Node.Op == "CumProd"
	return numeric(s, cumulative[float32](exclusive, reverse, product),
		cumulative[float64](exclusive, reverse, product),
		cumulative[int64](exclusive, reverse, product),
		cumulative[uint64](exclusive, reverse, product))
}

// cumulative takes one pass, line by line. With reverse it goes from the end; an exclusive result
// is that before the element. The first exclusive result is 0, or 1 of products. Sums are taken in
// T, from one end to the other, on one thread: float32 is not widened. out_k is x_0 + ... + x_k, or
// x_0 + ... + x_{k-1} where it is exclusive, and products likewise.
func cumulative[T number](exclusive, reverse, multiply bool) Kernel {
	return func(c *Call) error {
		in := c.In[0].Shape
		ax := try.Get(axisOf(whole(c.In[1], "axis"), len(in)))
		out := try.Get(c.New(0, c.In[0].DType, in))
		x, o := data[T](c.In[0]), data[T](out)
		// Beyond this n is at least 1, and divides the number of elements below.
		if len(o) == 0 {
			return nil
		}
		n, inner := in[ax], product(in[ax+1:])
		for l, lines := 0, len(o)/n; l < lines; l++ {
			// Line l is number l / inner of the axes before and l mod inner of those behind.
			base := l/inner*n*inner + l%inner
			var sofar T
			if multiply {
				sofar = 1
			}
			for k := 0; k < n; k++ {
				i := base + k*inner
				if reverse {
					i = base + (n-1-k)*inner
				}
				v := x[i]
				before := sofar
				if multiply {
					sofar *= v
				} else {
					sofar += v
				}
				if o[i] = sofar; exclusive {
					o[i] = before
				}
			}
		}
		return nil
	}
}
