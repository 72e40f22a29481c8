package kernel

import (
	"math"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Functions of one number, applied to each element: out = f(x), out's shape = x's.
func init() {
	for _, d := range []struct {
		op    string
		since int
		cost  int
		f     func(float64) float64
	}{
		{"Sqrt", 1, 4, math.Sqrt},
		{"Reciprocal", 1, 2, func(x float64) float64 { return 1 / x }},
		{"Ceil", 1, 2, math.Ceil}, {"Floor", 1, 2, math.Floor}, {"Round", 11, 2, math.RoundToEven},
		{"Sin", 7, 24, math.Sin}, {"Cos", 7, 24, math.Cos}, {"Tan", 7, 24, math.Tan},
		{"Asin", 7, 24, math.Asin}, {"Acos", 7, 24, math.Acos}, {"Atan", 7, 24, math.Atan},
		{"Sinh", 9, 24, math.Sinh}, {"Cosh", 9, 24, math.Cosh},
		{"Asinh", 9, 24, math.Asinh}, {"Acosh", 9, 24, math.Acosh}, {"Atanh", 9, 24, math.Atanh},
	} {
		register(Def{Op: d.op, Since: d.since, Half: true, New: floatFunction(d.cost, d.f)})
	}
	register(
		Def{Op: "Log", Since: 1, Half: true, New: evenFunction(16, evenLog, logarithm)},
		Def{Op: "Exp", Since: 1, Half: true, New: quickly(expRow, evenExps.kernel(16, math.Exp))},
		Def{Op: "Erf", Since: 9, Half: true, New: quickly(erfRow, evenErfs.kernel(24, math.Erf))},
		Def{Op: "Tanh", Since: 1, Half: true,
			New: quickly(tanhRow, evenFunction(24, evenTanh, math.Tanh))},
		Def{Op: "Abs", Since: 1, Half: true, New: newAbs},
		Def{Op: "Neg", Since: 1, Half: true, New: newNeg},
		Def{Op: "Sign", Since: 9, Half: true, New: newSign},
		Def{Op: "IsNaN", Since: 9, Half: true, New: newIsNaN},
		Def{Op: "IsInf", Since: 10, Half: true, New: newIsInf},
	)
}

// logarithm is math.Log, which takes numbers below the normal range for normal ones on amd64.
func logarithm(x float64) float64 {
	if x > 0 && x < 0x1p-1022 {
		return math.Log(x*0x1p54) - 54*math.Ln2
	}
	return math.Log(x)
}

// floatFunction computes in float64 and rounds once.
func floatFunction(cost int, f func(float64) float64) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		s.ignore("consumed_inputs")
		return floatKernel(s, cost, f)
	}
}

// evenFunction is floatFunction with another function for float32, whose steps are the same for all
// numbers.
func evenFunction(cost int, even, f func(float64) float64) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		s.ignore("consumed_inputs")
		return evenKernel(s, cost, even, f)
	}
}

// evenKernel takes even for float32 and f for all other types; both compute in float64.
func evenKernel(s *Spec, cost int, even, f func(float64) float64) (Kernel, error) {
	return singly(s, in64[float32](cost, even), cost, f)
}

// singly is f, computed in float64, but for float32, which has a kernel of its own.
func singly(s *Spec, single Kernel, cost int, f func(float64) float64) (Kernel, error) {
	return numeric(s, single, unaryOf(cost, f), in64[int64](cost, f), in64[uint64](cost, f))
}

// quickly is slow with a way in float32, where that is at hand.
func quickly(row func(dst, x []float32),
	slow func(*Spec) (Kernel, error)) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		k, err := slow(s)
		return quick(s, row, k), err
	}
}

// quick is slow but for float32, which is done by row, a run of at most runLength at a time, where
// that is at hand.
func quick(s *Spec, row func(dst, x []float32), slow Kernel) Kernel {
	if s.In[0] != onnx.Float32 || slow == nil {
		return slow
	}
	return either(rowOf(8, func(dst, x []float32) {
		for len(x) > 0 {
			n := min(len(x), runLength)
			row(dst[:n], x[:n])
			dst, x = dst[n:], x[n:]
		}
	}), slow)
}

// runLength is the number of elements that several passes go over while they stay in the
// first-level cache.
const runLength = 1024

// either returns the first kernel where the processor has its instructions, else the second.
func either(vectors, plain Kernel) Kernel {
	return func(c *Call) error {
		if vectorMath() && !c.env.Reproducible {
			return vectors(c)
		}
		return plain(c)
	}
}

// floatKernel computes in float64, for float32 too, and rounds once.
func floatKernel(s *Spec, cost int, f func(float64) float64) (Kernel, error) {
	return evenKernel(s, cost, f, f)
}

// in64 computes in float64 on elements stored as T. An integer's result is truncated.
func in64[T number](cost int, f func(float64) float64) Kernel {
	return unaryOf(cost, func(x T) T { return T(f(float64(x))) })
}

// unaryOf applies f to every element; the output has the input's type T and, where it can, its
// buffer.
func unaryOf[T onnx.Element](cost int, f func(T) T) Kernel {
	return rowOf(cost, func(dst, x []T) {
		for i, v := range x {
			dst[i] = f(v)
		}
	})
}

// rowOf applies an elementwise function that is given whole runs. dst may be x itself; f is called
// from several threads, each with its own run.
func rowOf[T onnx.Element](cost int, f func(dst, x []T)) Kernel {
	return func(c *Call) error {
		x := data[T](c.In[0])
		out := try.Get(c.over(0, 0, c.In[0].DType, c.In[0].Shape))
		dst := data[T](out)
		c.Parallel(len(x), cost, func(lo, hi int) { f(dst[lo:hi], x[lo:hi]) })
		return nil
	}
}

// abs of the least integer is that itself, as negation wraps around.
func abs[T number](x T) T {
	if x < 0 {
		return -x
	}
	return x
}

// newAbs takes the absolute value of floats by their sign bit, so that -0 becomes 0.
func newAbs(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	return numeric(s, unaryOf(1, func(x float32) float32 { return float32(math.Abs(float64(x))) }),
		unaryOf(1, math.Abs), unaryOf(1, abs[int64]), unaryOf(1, abs[uint64]))
}

// neg of the least integer is that itself.
func neg[T number](x T) T { return -x }

// newNeg has no kernel for unsigned integers, which the operator does not take.
func newNeg(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	return numeric(s, unaryOf(1, neg[float32]), unaryOf(1, neg[float64]), unaryOf(1, neg[int64]))
}

// signOf is -1, 0 or 1.
func signOf[T number](x T) T {
	var one T = 1
	return chosen(x > 0, one, chosen(x < 0, -one, x)) // 0 and NaN stay
}

// newSign leaves -0 and NaN as they are.
func newSign(s *Spec) (Kernel, error) {
	return numeric(s, unaryOf(1, signOf[float32]), unaryOf(1, signOf[float64]),
		unaryOf(1, signOf[int64]), unaryOf(1, signOf[uint64]))
}

// newIsNaN uses that NaN alone differs from itself (IEEE 754, 5.11).
func newIsNaN(s *Spec) (Kernel, error) {
	return predicate(func(x float64) bool { return x != x })
}

// IsInf: detect_negative and detect_positive (default 1) say which infinities count.
func newIsInf(s *Spec) (Kernel, error) {
	negative, positive := s.bool("detect_negative"), s.bool("detect_positive")
	return predicate(func(x float64) bool {
		return positive && math.IsInf(x, 1) || negative && math.IsInf(x, -1)
	})
}

// predicate tests every element as a float64. Float32 and halves are exact in float64, so that the
// answer is that of their own type.
func predicate(f func(float64) bool) (Kernel, error) {
	return func(c *Call) error {
		out := try.Get(c.New(0, onnx.Bool, c.In[0].Shape))
		d := data[bool](out)
		for i := range d {
			d[i] = f(c.In[0].At(i))
		}
		return nil
	}, nil
}
