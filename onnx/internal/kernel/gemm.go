package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx/internal/try"
)

// Gemm: alpha = 1, beta = 1, transA = 0, transB = 0:
//
//	out [m, n] = alpha A' B' + beta C, where A' is [m, k], B' is [k, n] and C is broadcast to [m, n]
func init() {
	register(
		Def{Op: "Gemm", Since: 7, Half: true, New: newGemm},
		Def{Op: "Gemm", Since: 6, Until: 6, Half: true, New: newGemm6},
	)
}

// gemmSpec holds the attributes; ta and tb say that A and B are transposed.
type gemmSpec struct {
	alpha, beta float64
	ta, tb      bool
}

// Opset 6: C is broadcast only where broadcast=1.
//
// newGemm6 compares C's rank alone before newGemm checks its sizes.
func newGemm6(s *Spec) (Kernel, error) {
	wide := s.bool("broadcast")
	k := try.Get(newGemm(s))
	return func(c *Call) error {
		if !wide && len(c.In[2].Shape) != 2 {
			return fmt.Errorf("input C has shape %v and the node does not broadcast", c.In[2].Shape)
		}
		return k(c)
	}, nil
}

// newGemm: integers take whole factors alone; with a fraction a result would have to be rounded.
func newGemm(s *Spec) (Kernel, error) {
	g := gemmSpec{alpha: s.float("alpha"), beta: s.float("beta"), ta: s.bool("transA"),
		tb: s.bool("transB")}
	if integers.Has(s.In[0]) &&
		(g.alpha != float64(int64(g.alpha)) || g.beta != float64(int64(g.beta))) {
		return nil, fmt.Errorf("alpha %v and beta %v of an integer product are not whole",
			g.alpha, g.beta)
	}
	return numeric(s, gemmFloat[float32](g, newRight(s, 1, g.tb)), gemmFloat[float64](g, nil),
		gemmInt[int64](g), gemmInt[uint64](g))
}

// shape returns the sizes of A' [m, k] and B' [k, n], or ends the kernel where they do not match.
func (g gemmSpec) shape(a, b []int) (m, n, k int) {
	if len(a) != 2 || len(b) != 2 {
		try.Fail("shapes %v and %v: two matrices are expected", a, b)
	}
	m, k = a[0], a[1]
	if g.ta {
		m, k = k, m
	}
	kb, n := b[0], b[1]
	if g.tb {
		kb, n = n, kb
	}
	if k != kb {
		try.Fail("shapes %v (transA %v) and %v (transB %v) do not match", a, g.ta, b, g.tb)
	}
	return m, n, k
}

// gemmStart makes the output holding beta C. It is 0 where C is left out or beta is 0, so that NaN
// in C does not reach the output then. A C that would make the output larger is refused.
func gemmStart[T number](c *Call, m, n int, beta T) []T {
	shape := []int{m, n}
	if c.in(2) != nil {
		if s, err := broadcast(c.In[2].Shape, shape); err != nil || !slices.Equal(s, shape) {
			try.Fail("input C of shape %v cannot be broadcast to %v", c.In[2].Shape, shape)
		}
	}
	out := try.Get(c.New(0, c.In[0].DType, shape))
	o := data[T](out)
	if c.in(2) == nil || beta == 0 {
		clear(o)
		return o
	}
	gather(c, out, c.In[2], 0, broadcastStrides(c.In[2].Shape, shape))
	if beta != 1 {
		for i := range o {
			o[i] *= beta
		}
	}
	return o
}

// gemmFloat adds alpha A' B' to beta C. Where alpha is not 1, A is copied, times alpha. r holds B
// laid out for panels where it is constant; nil where it is not. The stride is at least 1, which
// BLAS asks for of a matrix without columns too.
func gemmFloat[T floating](g gemmSpec, r *right) Kernel {
	return func(c *Call) error {
		m, n, k := g.shape(c.In[0].Shape, c.In[1].Shape)
		o := gemmStart(c, m, n, T(g.beta))
		a := matrix[T]{data: data[T](c.In[0]), rows: m, cols: k,
			stride: max(1, c.In[0].Shape[1]), trans: g.ta}
		b := matrix[T]{data: data[T](c.In[1]), rows: k, cols: n,
			stride: max(1, c.In[1].Shape[1]), trans: g.tb}
		if g.alpha != 1 {
			buf := make([]T, len(a.data))
			for i, v := range a.data {
				buf[i] = T(g.alpha) * v
			}
			a.data = buf
		}
		parallelMultiply(c, a, b, dense(o, m, n), r, nil)
		return nil
	}
}

// gemmInt wraps around, as integers do. It takes O(m n k) steps and looks once a line whether the
// run is to end. It is for exact results, not for speed: quantised operators have kernels of their
// own.
func gemmInt[T integer](g gemmSpec) Kernel {
	return func(c *Call) error {
		m, n, k := g.shape(c.In[0].Shape, c.In[1].Shape)
		o := gemmStart(c, m, n, T(int64(g.beta)))
		a, b := data[T](c.In[0]), data[T](c.In[1])
		for i := 0; i < m; i++ {
			c.check()
			for j := 0; j < n; j++ {
				var sum T
				for l := 0; l < k; l++ {
					// Places of A'[i, l] in A, and of B'[l, j] in B.
					x, y := i*k+l, l*n+j
					if g.ta {
						x = l*m + i
					}
					if g.tb {
						y = j*k + l
					}
					sum += a[x] * b[y]
				}
				o[i*n+j] += T(int64(g.alpha)) * sum
			}
		}
		return nil
	}
}
