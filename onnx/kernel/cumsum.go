package kernel

import (
	"fmt"
)

// CumSum: exclusive = 0, reverse = 0; running sums along the axis in input 1.
func init() {
	register(Def{Op: "CumSum", Since: 11, Half: true, New: newCumSum})
}

func newCumSum(s *Spec) (Kernel, error) {
	exclusive, reverse := s.bool("exclusive"), s.bool("reverse")
	return numeric(s, cumSum[float32](exclusive, reverse), cumSum[float64](exclusive, reverse), cumSum[int64](exclusive, reverse), cumSum[uint64](exclusive, reverse))
}

func cumSum[T number](exclusive, reverse bool) Kernel {
	return func(c *Call) error {
		in := c.In[0].Shape
		if c.In[1].Len() != 1 {
			return fmt.Errorf("axis has shape %v where a scalar is expected", c.In[1].Shape)
		}
		a, err := ints(c.In[1])
		if err != nil {
			return err
		}
		ax, err := axisOf(a[0], len(in))
		if err != nil {
			return err
		}
		out, err := c.New(0, c.In[0].DType, in)
		if err != nil {
			return err
		}
		x, o := data[T](c.In[0]), data[T](out)
		if len(o) == 0 {
			return nil
		}
		n, inner := in[ax], product(in[ax+1:])
		for l, lines := 0, len(o)/n; l < lines; l++ {
			base := l/inner*n*inner + l%inner
			var sum T
			for k := 0; k < n; k++ {
				i := base + k*inner
				if reverse {
					i = base + (n-1-k)*inner
				}
				v := x[i]
				if exclusive {
					o[i] = sum
					sum += v
				} else {
					sum += v
					o[i] = sum
				}
			}
		}
		return nil
	}
}
