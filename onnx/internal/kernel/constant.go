package kernel

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/internal/try"
	"fmp/onnx/op"
)

// Shape, Size, Constant, ConstantOfShape, Range, EyeLike, NonZero: values made from shapes,
// attributes and indices.
func init() {
	register(
		Def{Op: "Shape", Since: 1, New: newShape},
		Def{Op: "Size", Since: 1, New: newSize},
		Def{Op: "Constant", Since: 1, OutType: constantType, New: newConstant},
		Def{Op: "ConstantOfShape", Since: 9, OutType: constantType, New: newConstantOfShape},
		Def{Op: "Range", Since: 11, Half: true, New: newRange},
		Def{Op: "EyeLike", Since: 9, OutType: eyeType, New: newEyeLike},
		Def{Op: "NonZero", Since: 9, New: newNonZero},
	)
}

// Shape: start = 0, end = rank; the sizes of axes start <= k < end. Negative positions count from
// the end, and both are clamped, as a slice's are.
func newShape(s *Spec) (Kernel, error) {
	start, end, hasEnd := 0, 0, false
	// Before operator set 15 there are no bounds, and the whole shape is the result.
	if s.Opset >= 15 {
		hasEnd = s.hasAttr("end")
		start, end = s.int("start"), s.int("end")
	}
	return func(c *Call) error {
		in := c.In[0].Shape
		clamp := func(v int) int {
			if v < 0 {
				v += len(in)
			}
			return min(max(v, 0), len(in))
		}
		lo, hi := clamp(start), len(in)
		if hasEnd {
			// An end before the start gives an empty shape.
			hi = max(lo, clamp(end))
		}
		out := try.Get(c.New(0, onnx.Int64, []int{hi - lo}))
		for i, d := range in[lo:hi] {
			out.I64()[i] = int64(d)
		}
		return nil
	}, nil
}

// Size: the number of elements, as a scalar.
func newSize(*Spec) (Kernel, error) {
	return func(c *Call) error {
		out := try.Get(c.New(0, onnx.Int64, nil))
		out.I64()[0] = int64(c.In[0].Len())
		return nil
	}, nil
}

// constantOf is the tensor that the attributes of Constant or ConstantOfShape hold in one of their
// forms.
func constantOf(s *Spec) *onnx.Tensor {
	for _, a := range s.Node.Attrs {
		s.ignore(a.Name)
	}
	return op.Constant(s.Node)
}

// constantType is the value's own type; without a value ConstantOfShape is of float32 zeros.
func constantType(s *Spec) (onnx.DType, error) {
	switch t := constantOf(s); {
	case t != nil:
		return t.DType, nil
	case s.Node.Op == "ConstantOfShape":
		return onnx.Float32, nil
	}
	return 0, fmt.Errorf("it holds no value of a kind that is implemented")
}

// Constant: a copy of the one attribute, as outputs have buffers of their own.
func newConstant(s *Spec) (Kernel, error) {
	t := constantOf(s)
	if len(s.Node.Attrs) != 1 {
		return nil, fmt.Errorf("it has %d attributes where one is expected", len(s.Node.Attrs))
	}
	return func(c *Call) error {
		out := try.Get(c.New(0, t.DType, t.Shape))
		copyRange(out.Data, 0, t.Data, 0, t.Len())
		return nil
	}, nil
}

// ConstantOfShape: value = a tensor of one element (default float32 0); out's shape is the input's
// contents. A negative size is refused by Call.New, and one that is too large by the pool.
func newConstantOfShape(s *Spec) (Kernel, error) {
	t := s.tensor("value")
	if t == nil {
		t = onnx.Vector[float32](0)
	}
	if t.Len() != 1 {
		return nil, fmt.Errorf("value has %d elements where one is expected", t.Len())
	}
	return func(c *Call) error {
		shape := try.Get(ints(c.In[0]))
		out := try.Get(c.New(0, t.DType, shape))
		fill(out.Data, 0, out.Len(), t.Data, 0)
		return nil
	}, nil
}

// Range: out_i = start + i delta, n = max(ceil((limit - start) / delta), 0).
func newRange(s *Spec) (Kernel, error) {
	s.ignore("stash_type") // halves are computed in float32
	return numeric(s, rangeOf(steps[float32]), rangeOf(steps[float64]), rangeOf(wholeSteps))
}

// steps is (limit - start) / delta, which has no bound; delta is not 0.
func steps[T floating](start, limit, delta T) float64 {
	return (float64(limit) - float64(start)) / float64(delta)
}

// wholeSteps is ceil((limit - start) / delta), 0 where the limit lies behind. The differences are
// of uint64, which holds that of any two int64. Up to 2^53, float64 holds the quotient exactly.
func wholeSteps(start, limit, delta int64) float64 {
	gap, by := uint64(limit)-uint64(start), uint64(delta)
	if delta < 0 {
		start, limit, gap, by = limit, start, -gap, -by
	}
	if limit <= start {
		return 0
	}
	return float64((gap-1)/by + 1)
}

// rangeOf multiplies for every element in place of adding up, so that errors do not grow. Inputs
// must be of one element each. A delta of 0 or NaN is refused, and so are more elements than a
// tensor may have.
func rangeOf[T number](steps func(start, limit, delta T) float64) Kernel {
	return func(c *Call) error {
		start, limit := only[T](c.In[0], "start"), only[T](c.In[1], "limit")
		delta := only[T](c.In[2], "delta")
		if delta == 0 || delta != delta {
			return fmt.Errorf("delta is %v", delta)
		}
		count := steps(start, limit, delta)
		if !(count < onnx.MaxElements) {
			return fmt.Errorf("from %v to %v by %v are too many elements", start, limit, delta)
		}
		n := int(max(count, 0))
		// The conversion cuts a fraction off, and n is to be the quotient rounded up.
		if float64(n) < count {
			n++
		}
		out := try.Get(c.New(0, c.In[0].DType, []int{n}))
		o := data[T](out)
		for i := range o {
			// Of far integers the product may wrap around, and the sum wraps back.
			o[i] = start + T(i)*delta
		}
		return nil
	}
}

// eyeType is the attribute dtype, else the input's type.
func eyeType(s *Spec) (onnx.DType, error) {
	if s.hasAttr("dtype") {
		return s.dtype("dtype"), nil
	}
	return s.In[0], nil
}

// EyeLike: k = 0; ones on the k-th diagonal of a matrix of the input's shape.
func newEyeLike(s *Spec) (Kernel, error) {
	k := s.int("k")
	s.ignore("dtype") // read by eyeType
	one := try.Get(onnx.Zeros(s.Out[0], 1))
	castInto(one, onnx.Vector[int64](1))
	return func(c *Call) error {
		if len(c.In[0].Shape) != 2 {
			return fmt.Errorf("input of shape %v where a matrix is expected", c.In[0].Shape)
		}
		out := try.Get(c.New(0, one.DType, c.In[0].Shape))
		clearData(out)
		for i := 0; i < out.Shape[0]; i++ {
			// The sum is in 64 bits: a far k must not wrap around where ints have 32.
			if j := int64(i) + int64(k); j >= 0 && j < int64(out.Shape[1]) {
				copyRange(out.Data, i*out.Shape[1]+int(j), one.Data, 0, 1)
			}
		}
		return nil
	}, nil
}

// NonZero: out = [rank, n], the coordinates of the n elements that are not zero, in row-major
// order. It makes two passes: the number of columns is known only after the first. A scalar counts
// as one axis of one element.
func newNonZero(s *Spec) (Kernel, error) {
	if s.In[0] == onnx.String {
		return nil, fmt.Errorf("input of element type string is not supported")
	}
	return func(c *Call) error {
		in := c.In[0].Shape
		var found []int
		for i, n := 0, c.In[0].Len(); i < n; i++ {
			// NaN differs from 0, and counts.
			if c.In[0].At(i) != 0 {
				found = append(found, i)
			}
		}
		rank := max(len(in), 1)
		if len(in) == 0 {
			in = []int{1}
		}
		out := try.Get(c.New(0, onnx.Int64, []int{rank, len(found)}))
		pos := make([]int, rank)
		for j, i := range found {
			unravel(pos, i, in)
			for k, v := range pos {
				out.I64()[k*len(found)+j] = int64(v)
			}
		}
		return nil
	}, nil
}
