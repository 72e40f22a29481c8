package kernel

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Add, Sub, Mul, Div: out = a ∘ b with broadcasting. Integer division truncates towards zero;
// dividing an integer by zero is an error.
func init() {
	for _, d := range []struct {
		op  string
		new func(*Spec) (Kernel, error)
	}{{"Add", newAdd}, {"Sub", newSub}, {"Mul", newMul}, {"Div", newDiv}} {
		register(
			Def{Op: d.op, Since: 1, Until: 6, Half: true, New: sameShapeOnly(d.new)},
			Def{Op: d.op, Since: 7, Half: true, New: d.new},
		)
	}
	register(
		Def{Op: "Pow", Since: 7, Half: true, New: newPow},
		Def{Op: "Mod", Since: 10, Half: true, New: newMod},
	)
}

// sameShapeOnly is an operator before opset 7, whose broadcasting followed attributes: taken only
// where the shapes agree, which is known when the model runs.
func sameShapeOnly(next func(*Spec) (Kernel, error)) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		s.ignore("consumed_inputs")
		if s.hasAttr("axis") {
			return nil, fmt.Errorf("broadcasting along an axis, as before opset 7, is not supported")
		}
		// broadcast=1 without an axis aligned the second operand at the right, as later opsets do.
		if s.bool("broadcast") {
			return next(s)
		}
		k := try.Get(next(s))
		return func(c *Call) error {
			if !slices.Equal(c.In[0].Shape, c.In[1].Shape) {
				return fmt.Errorf("shapes %v and %v differ and the node does not broadcast",
					c.In[0].Shape, c.In[1].Shape)
			}
			return k(c)
		}, nil
	}
}

// addRow, subRow, mulRow and divRow are runs of zip: an operand has as many elements as dst, or one
// that is repeated. Each form has a loop of its own, since a call for every element costs more than
// the operation.
func addRow[T number](dst, a, b []T) {
	switch {
	case len(a) == len(dst) && len(b) == len(dst):
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	case len(a) == len(dst):
		y := b[0]
		for i := range dst {
			dst[i] = a[i] + y
		}
	default:
		x := a[0]
		for i := range dst {
			// b may have one element as well.
			dst[i] = x + b[min(i, len(b)-1)]
		}
	}
}

func subRow[T number](dst, a, b []T) {
	switch {
	case len(a) == len(dst) && len(b) == len(dst):
		for i := range dst {
			dst[i] = a[i] - b[i]
		}
	case len(a) == len(dst):
		y := b[0]
		for i := range dst {
			dst[i] = a[i] - y
		}
	default:
		x := a[0]
		for i := range dst {
			dst[i] = x - b[min(i, len(b)-1)]
		}
	}
}

func mulRow[T number](dst, a, b []T) {
	switch {
	case len(a) == len(dst) && len(b) == len(dst):
		for i := range dst {
			dst[i] = a[i] * b[i]
		}
	case len(a) == len(dst):
		y := b[0]
		for i := range dst {
			dst[i] = a[i] * y
		}
	default:
		x := a[0]
		for i := range dst {
			dst[i] = x * b[min(i, len(b)-1)]
		}
	}
}

func divRow[T number](dst, a, b []T) {
	switch {
	case len(a) == len(dst) && len(b) == len(dst):
		for i := range dst {
			dst[i] = a[i] / b[i]
		}
	case len(a) == len(dst):
		y := b[0]
		for i := range dst {
			dst[i] = a[i] / y
		}
	default:
		x := a[0]
		for i := range dst {
			dst[i] = x / b[min(i, len(b)-1)]
		}
	}
}

// newAdd has vectors for float32, as far as the processor has them; the loop adds the same numbers
// to the same bits.
func newAdd(s *Spec) (Kernel, error) {
	return numeric(s, binaryOf(vectors(sums, addRow[float32])), binaryOf[float64](addRow[float64]),
		binaryOf[int64](addRow[int64]), binaryOf[uint64](addRow[uint64]))
}

// newSub, newMul and newDiv have vectors as newAdd has.
func newSub(s *Spec) (Kernel, error) {
	return numeric(s, binaryOf(vectors(differences, subRow[float32])),
		binaryOf[float64](subRow[float64]), binaryOf[int64](subRow[int64]),
		binaryOf[uint64](subRow[uint64]))
}

func newMul(s *Spec) (Kernel, error) {
	return numeric(s, scaled32(binaryOf(vectors(products, mulRow[float32]))),
		binaryOf[float64](mulRow[float64]), binaryOf[int64](mulRow[int64]),
		binaryOf[uint64](mulRow[uint64]))
}

// scaled32 is the kernel next of a product, done at once where one operand has a number for each
// row of the other, as the scales of a squeeze-and-excite block. Rows are the axes up to the last
// in which the smaller operand is longer than 1.
func scaled32(next Kernel) Kernel {
	return func(c *Call) error {
		// from is the place of the larger operand, whose rows are scaled.
		from := 0
		if c.In[0].Len() < c.In[1].Len() {
			from = 1
		}
		x, by := c.In[from], c.In[1-from]
		rows, axes := by.Len(), len(by.Shape)
		for axes > 0 && by.Shape[axes-1] == 1 {
			axes--
		}
		// scaleRows of nothing tells whether the processor has it.
		if rows < 2 || len(x.Shape) != len(by.Shape) || x.Len() == rows ||
			!slices.Equal(x.Shape[:axes], by.Shape[:axes]) ||
			!scaleRows(nil, nil, nil) {
			return next(c)
		}
		out := try.Get(c.over(0, from, x.DType, x.Shape))
		o, v, scales, n := data[float32](out), data[float32](x), data[float32](by), x.Len()/rows
		c.Parallel(rows, work(n),
			func(lo, hi int) { scaleRows(o[lo*n:hi*n], v[lo*n:hi*n], scales[lo:hi]) })
		return nil
	}
}

func newDiv(s *Spec) (Kernel, error) {
	return numeric(s, binaryOf(vectors(quotients, divRow[float32])),
		binaryOf[float64](divRow[float64]), divInt[int64](), divInt[uint64]())
}

// divInt truncates towards zero, as Go does.
func divInt[T integer]() Kernel {
	k := binaryOf[T](divRow[T])
	return func(c *Call) error {
		try.Do(nonZero(data[T](c.In[1])))
		return k(c)
	}
}

// nonZero refuses a divisor of 0, at which Go would panic. It goes over all divisors before the
// first division: O(elements of b).
func nonZero[T integer](b []T) error {
	for _, v := range b {
		if v == 0 {
			return fmt.Errorf("division of an integer by zero")
		}
	}
	return nil
}

// binaryOf is a kernel out = row(a, b) in which all have element type T. An element counts as one
// operation where work is divided among threads.
func binaryOf[T onnx.Element](row func(dst, a, b []T)) Kernel {
	d := onnx.TypeOf[T]()
	return func(c *Call) error { return binary[T, T](c, d, 1, row) }
}

// numeric picks the kernel for the type of input 0, in the order float32, float64, int64, uint64.
// Narrower integers are widened to int64 and cut back afterwards, which gives the same as computing
// in the narrow type with wrapping around, and keeps one copy of the code instead of seven. A
// kernel that is nil or left out refuses its types when the node is prepared. Booleans go by int64
// too, where package op lets them in.
func numeric(s *Spec, ks ...Kernel) (Kernel, error) {
	pick := func(i int) (Kernel, error) {
		if i < len(ks) && ks[i] != nil {
			return ks[i], nil
		}
		return nil, fmt.Errorf("element type %v is not supported", s.In[0])
	}
	switch d := s.In[0]; d {
	case onnx.Float32:
		return pick(0)
	case onnx.Float64:
		return pick(1)
	case onnx.Int64:
		return pick(2)
	case onnx.Uint64:
		return pick(3)
	default:
		if from := narrowInts | boolean; !from.Has(d) {
			return pick(len(ks)) // none
		}
		k := try.Get(pick(2))
		return via(k, narrowInts|boolean, onnx.Int64, append([]onnx.DType{}, s.Out...),
			s.Const), nil
	}
}

// Pow: out = a^b, of a's type, with broadcasting. Float exponents of integers truncate the result.
// Operands of two types, or of int64, go one by one on one thread.
func newPow(s *Spec) (Kernel, error) {
	return func(c *Call) error {
		b := c.In[1]
		if b.DType == c.In[0].DType && c.In[0].DType != onnx.Int64 {
			return powKernel(c, c.In[0].DType)
		}
		// Work in a's type: exponents are widened once. int64 bases with integer exponents stay
		// exact.
		conv := c.In[0].DType
		exponents := scratch[float64](c, b.Len())
		castInto(&onnx.Tensor{DType: onnx.Float64, Shape: b.Shape, Data: exponents}, b)
		a := c.In[0]
		shape := try.Get(broadcast(a.Shape, b.Shape))
		o := try.Get(c.New(0, conv, shape))
		wa, wb := broadcastStrides(a.Shape, shape), broadcastStrides(b.Shape, shape)
		od := newOdometer(shape, [][]int{wa, wb}, 0)
		for i, n := 0, o.Len(); i < n; i++ {
			x, y := od.off[0], exponents[od.off[1]]
			switch d := o.Data.(type) {
			case []float32:
				d[i] = float32(evenPow(float64(a.Data.([]float32)[x]), y))
			case []float64:
				d[i] = math.Pow(a.Data.([]float64)[x], y)
			case []int32:
				d[i] = int32(powInt(int64(a.Data.([]int32)[x]), y))
			case []int64:
				d[i] = powInt(a.Data.([]int64)[x], y)
			}
			od.next()
		}
		return nil
	}, nil
}

// powKernel is Pow of two operands of one type: float32, float64 or int32. The square of a float32
// is one product.
func powKernel(c *Call, d onnx.DType) error {
	switch d {
	case onnx.Float32:
		if b := c.In[1]; b.Len() == 1 && b.F32()[0] == 2 {
			return binary[float32, float32](c, d, 1, func(dst, a, _ []float32) {
				for i := range dst {
					dst[i] = a[min(i, len(a)-1)] * a[min(i, len(a)-1)]
				}
			})
		}
		return binary[float32, float32](c, d, 32,
			each(func(a, b float32) float32 { return float32(evenPow(float64(a), float64(b))) }))
	case onnx.Float64:
		return binary[float64, float64](c, d, 32, each(math.Pow))
	}
	return binary[int32, int32](c, d, 32,
		each(func(a, b int32) int32 { return int32(powInt(int64(a), float64(b))) }))
}

// powInt is a^b by repeated squaring, O(log b), and wraps around as int64 does. Exponents below 0,
// above 2^20 or with a fraction go by float64, whose result is truncated. The limit of 2^20 is far
// beyond any power but those of -1, 0 and 1 that fits in 64 bits.
func powInt(a int64, b float64) int64 {
	if b != math.Trunc(b) || b < 0 || b > 1<<20 {
		p := math.Pow(float64(a), b)
		if !(p > math.MinInt64 && p < math.MaxInt64) {
			// NaN and numbers out of range; x86 makes the same of them, and other processors
			// something else
			return math.MinInt64
		}
		return int64(p)
	}
	r := int64(1)
	for n := int64(b); n > 0; n >>= 1 {
		if n&1 == 1 {
			r *= a
		}
		a *= a
	}
	return r
}

// Mod: fmod=0 gives the remainder with the sign of the divisor (integers), fmod=1 with that of the
// dividend (C's fmod). The specification allows fmod=0 for integers alone; floats are given NumPy's
// mod there, which floorMod computes.
func newMod(s *Spec) (Kernel, error) {
	fmod := s.bool("fmod")
	mod := math.Mod
	if !fmod {
		mod = floorMod
	}
	return numeric(s, binaryOf(
		each(func(a, b float32) float32 { return float32(mod(float64(a), float64(b))) })),
		binaryOf(each(mod)), modInt[int64](fmod), modInt[uint64](fmod))
}

// floorMod is a - floor(a / b) b, of the sign of b. A remainder of 0 has the sign of b too. Against
// an infinite b of the other sign the result is b, as Python and NumPy have it.
func floorMod(a, b float64) float64 {
	r := math.Mod(a, b)
	switch {
	case r == 0:
		return math.Copysign(0, b)
	case r != r:
		return r
	case (r < 0) != (b < 0) && math.IsInf(b, 0):
		return b
	case (r < 0) != (b < 0):
		return r + b
	}
	return r
}

// modInt is the remainder of the sign of a with fmod, and of the sign of b without. The tests for
// signs never hold for unsigned integers. A divisor of 0 is an error.
func modInt[T integer](fmod bool) Kernel {
	k := binaryOf(each(func(a, b T) T {
		r := a % b
		if !fmod && r != 0 && (r < 0) != (b < 0) {
			r += b
		}
		return r
	}))
	return func(c *Call) error {
		try.Do(nonZero(data[T](c.In[1])))
		return k(c)
	}
}
