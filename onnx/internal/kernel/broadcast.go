package kernel

import (
	"fmt"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// broadcast is the shape of an elementwise result, aligned at the right:
//
//	out_k = max(a_k, b_k), where a_k = b_k or one of them is 1 (a missing axis is 1; 0 beats 1)
//
// The result is a slice of its own. Shapes that do not fit are an error, which names them all.
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

// broadcastStrides are the strides of a tensor of the given shape read as one of shape out: 0 on
// repeated axes. shape must fit out: its axes align at the right, and have out's size or 1.
//
//go:noinline
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

// collapse merges neighbouring axes that every operand walks as one, so that inner loops are long.
// Axes of size 1 vanish. The result has at least one axis. Strides of operand o are operands[o],
// one for each axis of shape. It costs O(axes · operands). Axes k and k + 1 merge where stride_k =
// size_{k+1} stride_{k+1} for every operand.
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
	// sizes of the axes; st[j][k] is the stride of operand j on axis k; at is the position
	dims []int
	st   [][]int
	at   []int
	off  []int
}

// newOdometer stands at the i-th position, counted in row-major order. dims and st are kept, not
// copied; strides beyond the axes of dims are not read.
//
//go:noinline
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

// next goes on by one position. It costs O(operands) but for the ends of lines.
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

// zip calls row(dst, a, b) on runs of the broadcast elementwise loop out = a ∘ b; a run of a or b
// has either as many elements as dst or one, which is repeated. row may be called from several
// threads at a time, each with its own part of dst. dst may be a or b itself.
func zip[A, O any](c *Call, out []O, shape []int, a []A, as []int, b []A, bs []int, cost int,
	row func(dst []O, a, b []A)) {
	if len(out) == 0 {
		return
	}
	repeat := func(times int) { b = slices.Repeat(b, times) }
	cover(c, [2]int{len(a), len(b)}, shape, as, bs, cost, repeat,
		func(lo, hi int, from, step []int) {
			row(out[lo:hi], a[from[0]:][:1+(hi-lo-1)*step[0]], b[from[1]:][:1+(hi-lo-1)*step[1]])
		})
}

// cover calls do as [runs] does, for two operands with these numbers of elements, and first has
// repeat make short runs of the second longer. No type of elements changes anything here, so that
// one copy serves all. That is a bias or a scale along the last axes, against a first operand that
// is as large as the result.
func cover(c *Call, elements [2]int, shape, as, bs []int, cost int, repeat func(times int),
	do func(lo, hi int, from, step []int)) {
	dims, st := collapse(shape, broadcastStrides(as, shape), broadcastStrides(bs, shape))
	n, short := product(shape), elements[1]
	if len(dims) != 2 || st[1][0] != 0 || short > shortRun/2 || elements[0] != n {
		runs(c, dims, st, cost, do)
		return
	}
	times := min(dims[0], shortRun/short)
	repeat(times)
	long, step := times*short, []int{1, 1}
	c.Parallel((n+long-1)/long, work(long, cost), func(lo, hi int) {
		from := []int{0, 0}
		for at := lo * long; at < min(hi*long, n); at += long {
			from[0] = at
			do(at, min(at+long, n), from, step)
		}
	})
}

// shortRun is the length of a run from which on the work done once for each takes little time.
const shortRun = 256

// runs calls do for the elements of a result of such dims, from lo to hi: runs along the last axis.
// Operand k has strides st[k]; for a run it is read from from[k] on, in steps of step[k]. do must
// not keep or change from and step, which serve the next run as well. Threads divide the runs, or
// the only one.
func runs(c *Call, dims []int, st [][]int, cost int, do func(lo, hi int, from, step []int)) {
	last := len(dims) - 1
	inner, outer, step := dims[last], dims[:last], make([]int, len(st))
	for k := range st {
		step[k] = st[k][last]
	}
	if last == 0 {
		// One long run: divide it.
		c.Parallel(inner, cost, func(lo, hi int) {
			from := make([]int, len(st))
			for k := range from {
				from[k] = lo * step[k]
			}
			do(lo, hi, from, step)
		})
		return
	}
	c.Parallel(product(outer), work(inner, cost), func(lo, hi int) {
		od := newOdometer(outer, st, lo)
		for i := lo; i < hi; i++ {
			do(i*inner, (i+1)*inner, od.off, step)
			od.next()
		}
	})
}

// each turns a scalar function into a row function for zip. Each form has a loop of its own,
// without a test for every element.
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
	out, a, b := pairOutput(c, d), c.In[0], c.In[1]
	zip(c, data[O](out), out.Shape, data[A](a), a.Shape, data[A](b), b.Shape, cost, row)
	return nil
}

// pairOutput is the part of binary that no type changes: the result, in the place of an operand
// where that may be overwritten. Operand 0 is tried first and then operand 1; at most one of them
// gives up its buffer.
func pairOutput(c *Call, d onnx.DType) *onnx.Tensor {
	a := c.In[0]
	shape := try.Get(broadcast(a.Shape, c.In[1].Shape))
	if d == a.DType && c.Overwrite[0] && slices.Equal(a.Shape, shape) {
		return try.Get(c.over(0, 0, d, shape))
	}
	return try.Get(c.over(0, 1, d, shape))
}
