package kernel

import (
	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Sum, Max, Min, Mean of any number of inputs, with broadcasting, folded from the left.
func init() {
	register(
		Def{Op: "Sum", Since: 6, Half: true, New: newSum},
		Def{Op: "Max", Since: 6, Half: true, New: newMax},
		Def{Op: "Min", Since: 6, Half: true, New: newMin},
		Def{Op: "Mean", Since: 6, Half: true, New: newMean},
	)
}

// newSum is of floats alone, as the operator is; newMax and newMin are of integers too.
func newSum(s *Spec) (Kernel, error) {
	return numeric(s, fold[float32](addRow[float32]), fold[float64](addRow[float64]))
}

// newMean is of floats alone, as the operator is.
func newMean(s *Spec) (Kernel, error) {
	return numeric(s, meanOf[float32](), meanOf[float64]())
}

// meanOf divides the sum by the number of inputs, once. It sums in T, so that large float32 may
// overflow although their mean would not.
func meanOf[T floating]() Kernel {
	sum := fold[T](addRow[T])
	return func(c *Call) error {
		try.Do(sum(c))
		n := T(len(c.In))
		if c.Alias[0] >= 0 { // the only input itself
			return nil
		}
		out := data[T](c.Out[0])
		for i := range out {
			out[i] /= n
		}
		return nil
	}
}

// newMax gives NaN wherever an input has it, and so does newMin.
func newMax(s *Spec) (Kernel, error) {
	return numeric(s, fold(each(maxOf[float32])), fold(each(maxOf[float64])),
		fold(each(maxOf[int64])), fold(each(maxOf[uint64])))
}

func newMin(s *Spec) (Kernel, error) {
	return numeric(s, fold(each(minOf[float32])), fold(each(minOf[float64])),
		fold(each(minOf[int64])), fold(each(minOf[uint64])))
}

// Go's min and max give NaN where either is NaN, as NumPy and the ONNX reference do.
func maxOf[T number](a, b T) T { return max(a, b) }
func minOf[T number](a, b T) T { return min(a, b) }

// fold combines the first two inputs and then each other one with the result. Every input is
// broadcast to the shape of all. One input is its own result, in the same buffer. From the third
// on, row reads and writes the result in place, which elementwise rows allow.
func fold[T onnx.Element](row func(dst, a, b []T)) Kernel {
	d := onnx.TypeOf[T]()
	return func(c *Call) error {
		if len(c.In) == 1 {
			return c.view(0, 0, c.In[0].Shape)
		}
		shapes := make([][]int, len(c.In))
		for i, t := range c.In {
			shapes[i] = t.Shape
		}
		// The shape is that of all inputs, so that the first two are broadcast once and for all.
		shape := try.Get(broadcast(shapes...))
		out := try.Get(c.New(0, d, shape))
		o := data[T](out)
		zip(c, o, shape, data[T](c.In[0]), c.In[0].Shape, data[T](c.In[1]), c.In[1].Shape, 1, row)
		for _, t := range c.In[2:] {
			zip(c, o, shape, o, shape, data[T](t), t.Shape, 1, row)
		}
		return nil
	}
}
