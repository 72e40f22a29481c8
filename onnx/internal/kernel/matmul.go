package kernel

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// MatMul: NumPy's matmul, batches broadcast:
//
//	out[..., m, n] = a[..., m, k] b[..., k, n]
//
// A vector a is read as [1, k], a vector b as [k, 1], and the axis of size 1 is dropped from the
// result.
func init() {
	register(Def{Op: "MatMul", Since: 1, Half: true, New: newMatMul})
}

// newMatMul lays a constant B of float32 out once, and may take on the nodes that follow line by
// line.
func newMatMul(s *Spec) (Kernel, error) {
	return numeric(s, matMulFloat[float32](newRight(s, 1, false), newLines(s)),
		matMulFloat[float64](nil, &lines{}),
		matMulInt[int64], matMulInt[uint64])
}

// matMulPlan is the division of two shapes into products. Strides a and b count whole matrices, of
// m k and of k n elements, which lie in memory one after another.
type matMulPlan struct {
	m, n, k int
	out     []int // the result's shape
	batch   []int
	a, b    []int // strides of the batch axes
	oneB    bool  // b has no batch axes: the product is one matrix product of a's stacked rows
}

// planMatMul fits two shapes to each other; an error names them. It costs O(rank) and is made anew
// for every call, since shapes may change.
func planMatMul(as, bs []int) (p matMulPlan, err error) {
	if len(as) == 0 || len(bs) == 0 {
		return p, fmt.Errorf("shapes %v and %v: a scalar cannot be multiplied as a matrix", as, bs)
	}
	a, b := as, bs
	if len(a) == 1 {
		a = []int{1, a[0]}
	}
	if len(b) == 1 {
		b = []int{b[0], 1}
	}
	p.m, p.k, p.n = a[len(a)-2], a[len(a)-1], b[len(b)-1]
	if b[len(b)-2] != p.k {
		return p, fmt.Errorf("shapes %v and %v do not match: %d columns and %d rows", as, bs,
			p.k, b[len(b)-2])
	}
	if p.batch, err = broadcast(a[:len(a)-2], b[:len(b)-2]); err != nil {
		return p, fmt.Errorf("batches of shapes %v and %v: %w", as, bs, err)
	}
	p.a, p.b = broadcastStrides(a[:len(a)-2], p.batch), broadcastStrides(b[:len(b)-2], p.batch)
	// There is one b, and no axis of a's batches is broadcast: all rows of a lie as one matrix.
	p.oneB = product(b[:len(b)-2]) == 1 && product(a[:len(a)-2]) == product(p.batch)
	p.out = append([]int{}, p.batch...)
	if len(as) > 1 {
		p.out = append(p.out, p.m)
	}
	if len(bs) > 1 {
		p.out = append(p.out, p.n)
	}
	return p, nil
}

// matMulFloat is the kernel of type T; r and l serve only products of one matrix b.
func matMulFloat[T floating](r *right, l *lines) Kernel {
	return func(c *Call) error { return matMul[T](c, r, l) }
}

// matMul is one product of all rows where b is one matrix. Else it is a product for each batch:
// threads divide the batches, or each product where that is large.
func matMul[T floating](c *Call, r *right, l *lines) error {
	p := try.Get(planMatMul(c.In[0].Shape, c.In[1].Shape))
	out := try.Get(c.New(0, c.In[0].DType, p.out))
	a, b, o := data[T](c.In[0]), data[T](c.In[1]), data[T](out)
	if p.oneB {
		parallelMultiply(c, dense(a, product(p.batch)*p.m, p.k), dense(b, p.k, p.n),
			dense(o, product(p.batch)*p.m, p.n), r, l)
		return nil
	}
	if work(p.m, p.n, p.k) > pieceWork { // one after the other, each divided
		clear(o)
		od := newOdometer(p.batch, [][]int{p.a, p.b}, 0)
		for i := range product(p.batch) {
			ao, bo, oo := od.off[0]*p.m*p.k, od.off[1]*p.k*p.n, i*p.m*p.n
			parallelMultiply(c, dense(a[ao:ao+p.m*p.k], p.m, p.k),
				dense(b[bo:bo+p.k*p.n], p.k, p.n), dense(o[oo:oo+p.m*p.n], p.m, p.n), nil, nil)
			od.next()
		}
		return nil
	}
	// All batches are of one size, so that one choice serves them all.
	inPanels := panels(p.m, p.n, p.k)
	// Panels of float32 write the product; all others add to the output, which must be 0 then.
	fresh := inPanels && c.In[0].DType == onnx.Float32
	if !fresh {
		clear(o)
	}
	c.Parallel(product(p.batch), work(p.m, p.n, p.k)/4, func(lo, hi int) {
		od := newOdometer(p.batch, [][]int{p.a, p.b}, lo)
		for i := lo; i < hi; i++ {
			ao, bo, oo := od.off[0]*p.m*p.k, od.off[1]*p.k*p.n, i*p.m*p.n
			x, y, z := dense(a[ao:ao+p.m*p.k], p.m, p.k), dense(b[bo:bo+p.k*p.n], p.k, p.n),
				dense(o[oo:oo+p.m*p.n], p.m, p.n)
			multiplyAs(x, y, z, inPanels, c.env.Reproducible, fresh)
			od.next()
		}
	})
	return nil
}

// matMulInt wraps around, as integers do, and looks once a line whether the run is to end. The
// loops run over k before columns, so that rows of b and of the output are read in order.
func matMulInt[T integer](c *Call) error {
	p := try.Get(planMatMul(c.In[0].Shape, c.In[1].Shape))
	out := try.Get(c.New(0, c.In[0].DType, p.out))
	a, b, o := data[T](c.In[0]), data[T](c.In[1]), data[T](out)
	clear(o)
	od := newOdometer(p.batch, [][]int{p.a, p.b}, 0)
	for x, n := 0, product(p.batch); x < n; x++ {
		ao, bo, oo := od.off[0]*p.m*p.k, od.off[1]*p.k*p.n, x*p.m*p.n
		for i := 0; i < p.m; i++ {
			c.check()
			row := o[oo+i*p.n : oo+(i+1)*p.n]
			for l := 0; l < p.k; l++ {
				v := a[ao+i*p.k+l]
				for j, w := range b[bo+l*p.n : bo+(l+1)*p.n] {
					row[j] += v * w
				}
			}
		}
		od.next()
	}
	return nil
}
