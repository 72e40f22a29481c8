package kernel

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Where: out = condition ? x : y, with broadcasting of all three.
func init() {
	register(Def{Op: "Where", Since: 9, New: newWhere})
}

// newWhere divides float32 and int64 among threads; choose moves elements of all other types.
func newWhere(*Spec) (Kernel, error) {
	return func(c *Call) error {
		shape := try.Get(broadcast(c.In[0].Shape, c.In[1].Shape, c.In[2].Shape))
		out := try.Get(c.New(0, c.In[1].DType, shape))
		switch d := out.Data.(type) {
		case []float32:
			where(c, d, shape)
		case []int64:
			where(c, d, shape)
		default:
			choose(c, out)
		}
		return nil
	}, nil
}

// where divides the outputs among threads; each takes the same steps whichever operand it has.
func where[T onnx.Element](c *Call, out []T, shape []int) {
	cond, x, y := c.In[0].Data.([]bool), data[T](c.In[1]), data[T](c.In[2])
	// Axes along which all three operands run on alike are joined, which makes the walk shorter.
	dims, st := collapse(shape, broadcastStrides(c.In[0].Shape, shape),
		broadcastStrides(c.In[1].Shape, shape), broadcastStrides(c.In[2].Shape, shape))
	c.Parallel(len(out), 4, func(lo, hi int) {
		od := newOdometer(dims, st, lo)
		for i := lo; i < hi; i++ {
			out[i] = chosen(cond[od.off[0]], x[od.off[1]], y[od.off[2]])
			od.next()
		}
	})
}

// chosen returns x where c holds, else y, in the same steps.
func chosen[T onnx.Element](c bool, x, y T) T {
	return [2]T{y, x}[mask(c)&1]
}

// choose is where for the rarer element types. It runs on one thread, and asks for the type once
// and not for every element.
func choose(c *Call, out *onnx.Tensor) {
	cond, shape, move := c.In[0].Data.([]bool), out.Shape, movesOf(out.Data)
	od := newOdometer(shape,
		[][]int{broadcastStrides(c.In[0].Shape, shape), broadcastStrides(c.In[1].Shape, shape),
			broadcastStrides(c.In[2].Shape, shape)}, 0)
	for i, n := 0, out.Len(); i < n; i++ {
		if cond[od.off[0]] {
			move.copy(out.Data, i, c.In[1].Data, od.off[1], 1)
		} else {
			move.copy(out.Data, i, c.In[2].Data, od.off[2], 1)
		}
		od.next()
	}
}
