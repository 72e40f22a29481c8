package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
)

// broadcast is the shape of an elementwise result, aligned at the right:
//
//	out_k = max(a_k, b_k), where a_k = b_k or one of them is 1 (a missing axis is 1; 0 beats 1)
func broadcast(shapes ...[]int) ([]int, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
	}
	for _, s := range shapes {
		for i, d := range s {
			k := rank - len(s) + i
			switch {
			case d == out[k] || d == 1:
			case out[k] == 1:
				out[k] = d
			default:
				return nil, fmt.Errorf("shapes %v cannot be broadcast together", shapes)
			}
		}
	}
	return out, nil
}

// broadcastStrides are the strides of a tensor of the given shape read as one of shape out: 0 on repeated axes.
func broadcastStrides(shape, out []int) []int {
	st := strides(shape)
	b := make([]int, len(out))
	for i := range shape {
		if shape[i] != 1 {
			b[len(out)-len(shape)+i] = st[i]
		}
	}
	return b
}

// collapse merges neighbouring axes that every operand walks as one, so that inner loops are long. Axes of size
// 1 vanish. The result has at least one axis.
func collapse(shape []int, operands ...[]int) ([]int, [][]int) {
	var dims []int
	st := make([][]int, len(operands))
	for k, d := range shape {
		if d == 1 {
			continue
		}
		merge := len(dims) > 0
		for o := range operands {
			if merge && st[o][len(dims)-1] != operands[o][k]*d {
				merge = false
			}
		}
		if merge {
			dims[len(dims)-1] *= d
			for o := range operands {
				st[o][len(dims)-1] = operands[o][k]
			}
			continue
		}
		dims = append(dims, d)
		for o := range operands {
			st[o] = append(st[o], operands[o][k])
		}
	}
	if len(dims) == 0 {
		dims = []int{1}
		for o := range operands {
			st[o] = []int{0}
		}
	}
	return dims, st
}

// odometer counts through all axes of a shape, keeping the offset of each operand.
type odometer struct {
	dims []int
	st   [][]int
	at   []int
	off  []int
}

// newOdometer stands at the i-th position, counted in row-major order.
func newOdometer(dims []int, st [][]int, i int) *odometer {
	o := &odometer{dims: dims, st: st, at: make([]int, len(dims)), off: make([]int, len(st))}
	for k := len(dims) - 1; k >= 0; k-- {
		if dims[k] == 0 {
			continue // nothing to count
		}
		o.at[k] = i % dims[k]
		i /= dims[k]
		for j := range st {
			o.off[j] += o.at[k] * st[j][k]
		}
	}
	return o
}

func (o *odometer) next() {
	for k := len(o.dims) - 1; k >= 0; k-- {
		o.at[k]++
		for j := range o.st {
			o.off[j] += o.st[j][k]
		}
		if o.at[k] < o.dims[k] {
			return
		}
		for j := range o.st {
			o.off[j] -= o.dims[k] * o.st[j][k]
		}
		o.at[k] = 0
	}
}

// zip calls row(dst, a, b) on runs of the broadcast elementwise loop out = a ∘ b; a run of a or b has either
// as many elements as dst or one, which is repeated.
func zip[A, O any](c *Call, out []O, shape []int, a []A, as []int, b []A, bs []int, cost int, row func(dst []O, a, b []A)) {
	if len(out) == 0 {
		return
	}
	dims, st := collapse(shape, broadcastStrides(as, shape), broadcastStrides(bs, shape))
	inner := dims[len(dims)-1]
	sa, sb := st[0][len(dims)-1], st[1][len(dims)-1]
	if len(dims) == 1 {
		// One long run: divide it.
		c.Parallel(inner, cost, func(lo, hi int) {
			row(out[lo:hi], run(a, 0, sa, lo, hi), run(b, 0, sb, lo, hi))
		})
		return
	}
	outer := dims[:len(dims)-1]
	c.Parallel(product(outer), work(inner, cost), func(lo, hi int) {
		od := newOdometer(outer, st, lo)
		for i := lo; i < hi; i++ {
			row(out[i*inner:(i+1)*inner], run(a, od.off[0], sa, 0, inner), run(b, od.off[1], sb, 0, inner))
			od.next()
		}
	})
}

func run[A any](a []A, off, stride, lo, hi int) []A {
	if stride == 0 {
		return a[off : off+1]
	}
	return a[off+lo : off+hi]
}

// each turns a scalar function into a row function for zip.
func each[A, O any](f func(a, b A) O) func(dst []O, a, b []A) {
	return func(dst []O, a, b []A) {
		switch {
		case len(a) == len(dst) && len(b) == len(dst):
			for i := range dst {
				dst[i] = f(a[i], b[i])
			}
		case len(b) == len(dst):
			for i := range dst {
				dst[i] = f(a[0], b[i])
			}
		case len(a) == len(dst):
			for i := range dst {
				dst[i] = f(a[i], b[0])
			}
		default:
			for i := range dst {
				dst[i] = f(a[0], b[0])
			}
		}
	}
}

// binary runs an elementwise operator out = f(a, b) on inputs of one type T; the output holds O.
func binary[A, O any](c *Call, d onnx.DType, cost int, row func(dst []O, a, b []A)) error {
	a, b := c.In[0], c.In[1]
	shape, err := broadcast(a.Shape, b.Shape)
	if err != nil {
		return err
	}
	var out *onnx.Tensor
	switch {
	case d == a.DType && c.Overwrite[0] && slices.Equal(a.Shape, shape):
		out, err = c.Over(0, 0, d, shape)
	case d == b.DType && c.Overwrite[1] && slices.Equal(b.Shape, shape):
		out, err = c.Over(0, 1, d, shape)
	default:
		out, err = c.New(0, d, shape)
	}
	if err != nil {
		return err
	}
	zip(c, data[O](out), shape, data[A](a), a.Shape, data[A](b), b.Shape, cost, row)
	return nil
}
