package kernel

import (
	"fmt"

	"fmp/onnx/internal/try"
)

// Trilu: upper = 1; k = 0 (input 1); keeps j >= i + k of each matrix (upper) or j <= i + k (lower),
// the rest is zero.
func init() {
	register(Def{Op: "Trilu", Since: 14, New: newTrilu})
}

// newTrilu clears the result and copies the run of every row that stays: O(elements). Input 0 is
// [..., m, n].
func newTrilu(s *Spec) (Kernel, error) {
	upper := s.bool("upper")
	return func(c *Call) error {
		in := c.In[0].Shape
		if len(in) < 2 {
			return fmt.Errorf("input of shape %v where matrices are expected", in)
		}
		k := 0
		if t := c.in(1); t != nil {
			k = whole(t, "k")
		}
		out := try.Get(c.New(0, c.In[0].DType, in))
		clearData(out)
		m, n := in[len(in)-2], in[len(in)-1]
		for r, rows := 0, product(in[:len(in)-1]); r < rows; r++ {
			// i + k within 0 .. n, without overflow
			lo, hi := 0, n
			// Row r of all is row r mod m of its matrix.
			edge := min(max(k, -m), n) + r%m
			if upper {
				lo = min(max(edge, 0), n)
			} else {
				hi = min(max(edge+1, 0), n)
			}
			if lo < hi {
				copyRange(out.Data, r*n+lo, c.In[0].Data, r*n+lo, hi-lo)
			}
		}
		return nil
	}, nil
}
