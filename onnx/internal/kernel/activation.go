package kernel

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Activation functions, elementwise: out's shape = x's. Defaults are those of the specification.
func init() {
	f := func(op string, since int, n func(*Spec) (Kernel, error)) {
		register(Def{Op: op, Since: since, Half: true, New: n})
	}
	f("Sigmoid", 1, quickly(sigmoidRow, evenSigmoids.kernel(20, sigmoid)))
	f("Softplus", 1, evenFunction(40, evenSoftplus, softplus))
	f("Softsign", 1, floatFunction(4, func(x float64) float64 { return x / (1 + math.Abs(x)) }))
	f("Mish", 18, evenFunction(60,
		func(x float64) float64 { return max(x, mishEnd32) * evenTanh(evenSoftplus(x)) },
		func(x float64) float64 { return max(x, mishEnd) * math.Tanh(softplus(x)) }))
	f("HardSwish", 14, quickly(hardSwishRow, newHardSwish))
	f("LeakyRelu", 1, newLeakyRelu)
	f("Elu", 1, newElu)
	f("Celu", 12, newCelu)
	f("Selu", 1, newSelu)
	f("ThresholdedRelu", 10, newThresholdedRelu)
	f("HardSigmoid", 1, newHardSigmoid)
	f("Shrink", 9, newShrink)
	f("Gelu", 20, newGelu)
	register(
		Def{Op: "Relu", Since: 1, Half: true, New: newRelu},
		Def{Op: "PRelu", Since: 7, Half: true, New: newPRelu},
		Def{Op: "PRelu", Since: 1, Until: 6, Half: true, New: newPReluBefore7},
		Def{Op: "Clip", Since: 6, Until: 10, Half: true, New: newClipByAttributes},
		Def{Op: "Clip", Since: 11, Half: true, New: newClip},
	)
}

// mishEnd is from where on downwards x tanh(log(1 + e^x)) is 0, its limit at -Inf; mishEnd32 is
// that of float32.
const mishEnd, mishEnd32 = -1000, -110

// sigmoid is 1 / (1 + e^-x), by the one of two forms whose exponential cannot overflow.
func sigmoid(x float64) float64 {
	if x >= 0 {
		return 1 / (1 + math.Exp(-x))
	}
	e := math.Exp(x)
	return e / (1 + e)
}

// product32 is mulRow in vectors, as far as the processor has them.
var product32 = vectors(products, mulRow[float32])

// sigmoidRow and hardSwishRow are the curves in float32, for processors with vectors.
func sigmoidRow(dst, x []float32) { curveRow(logistic, dst, x) }

func hardSwishRow(dst, x []float32) { curveRow(hardSwish, dst, x) }

// hardSwishOf is x min(max(x/6 + 1/2, 0), 1).
func hardSwishOf(x float64) float64 { return x * max(0, min(1, x/6+0.5)) }

// newHardSwish is the kernel for processors without vectors, and for results that are the same
// everywhere.
func newHardSwish(s *Spec) (Kernel, error) {
	return singly(s, rowOf(1, evenHardSwish), 4, hardSwishOf)
}

// softplus is log(1 + e^x), without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// relu is max(x, 0).
func relu[T number](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = max(v, 0) // NaN stays NaN
	}
}

// newRelu: the limit of float32 adds -0, which leaves every number as it is, and cuts at 0.
func newRelu(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	return numeric(s, rowOf(1,
		func(dst, x []float32) { limit(dst, x, 1, negativeZero, 0, float32(math.Inf(1))) }),
		rowOf(1, relu[float64]), rowOf(1, relu[int64]))
}

// LeakyRelu: alpha = 0.01; x < 0 gives alpha x. The choice is without branches, so that time tells
// nothing of signs.
func newLeakyRelu(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	alpha := s.float("alpha")
	return floatKernel(s, 2, func(x float64) float64 {
		return chosen(x < 0, alpha*x, x)
	})
}

// Elu: alpha = 1; x < 0 gives alpha (e^x - 1).
func newElu(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	alpha := s.float("alpha")
	return evenKernel(s, 20, func(x float64) float64 {
		return max(0, x) + alpha*evenExpm1(min(0, x))
	}, func(x float64) float64 {
		if x < 0 {
			return alpha * math.Expm1(x)
		}
		return x
	})
}

// Celu: alpha = 1; max(0, x) + min(0, alpha (e^(x/alpha) - 1)).
func newCelu(s *Spec) (Kernel, error) {
	alpha := s.float("alpha")
	return evenKernel(s, 20,
		func(x float64) float64 { return max(0, x) + min(0, alpha*evenExpm1(x/alpha)) },
		func(x float64) float64 { return max(0, x) + min(0, alpha*math.Expm1(x/alpha)) })
}

// Selu: x > 0 gives gamma x, else gamma alpha (e^x - 1). Before operator set 6 the defaults had
// fewer digits; a model without attributes there is refused.
func newSelu(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	alpha, gamma := s.float("alpha"), s.float("gamma")
	if s.Opset < 6 && !(s.hasAttr("alpha") && s.hasAttr("gamma")) {
		return nil, fmt.Errorf("the defaults of alpha and gamma before opset 6 are not supported")
	}
	return evenKernel(s, 20,
		func(x float64) float64 { return gamma*max(0, x) + gamma*alpha*evenExpm1(min(0, x)) },
		func(x float64) float64 {
			if x > 0 {
				return gamma * x
			}
			return gamma * alpha * math.Expm1(x)
		})
}

// ThresholdedRelu: alpha = 1; x > alpha stays, the rest is 0, NaN too.
func newThresholdedRelu(s *Spec) (Kernel, error) {
	alpha := s.float("alpha")
	return floatKernel(s, 2, func(x float64) float64 {
		return chosen(x > alpha, x, 0)
	})
}

// HardSigmoid: alpha = 0.2, beta = 0.5; max(0, min(1, alpha x + beta)).
func newHardSigmoid(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	alpha, beta := s.float("alpha"), s.float("beta")
	slow, err := floatKernel(s, 2, func(x float64) float64 { return max(0, min(1, alpha*x+beta)) })
	return quick(s, func(dst, x []float32) { limit(dst, x, float32(alpha), float32(beta), 0, 1) },
		slow), err
}

// Shrink: lambd = 0.5, bias = 0; x < -lambd gives x + bias, x > lambd gives x - bias, the rest 0.
func newShrink(s *Spec) (Kernel, error) {
	lambd, bias := s.float("lambd"), s.float("bias")
	return floatKernel(s, 2, func(x float64) float64 {
		switch {
		case x < -lambd:
			return x + bias
		case x > lambd:
			return x - bias
		}
		return 0 * x // NaN stays NaN
	})
}

// Gelu: approximate = "none" is x Φ(x), "tanh" its approximation. Φ(x) = (1 + erf(x/√2)) / 2; the
// approximation is x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2 (Hendrycks and Gimpel 2016).
func newGelu(s *Spec) (Kernel, error) {
	if s.str("approximate") == "none" {
		wide := func(x float64) float64 { return 0.5 * x * (1 + math.Erf(x/math.Sqrt2)) }
		slow, err := singly(s, rowOf(8, evenGelu), 30, wide)
		return quick(s, geluRow, slow), err
	}
	inner := func(x float64) float64 { return math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x) }
	return evenKernel(s, 30, func(x float64) float64 { return 0.5 * x * (1 + evenTanh(inner(x))) },
		func(x float64) float64 { return 0.5 * x * (1 + math.Tanh(inner(x))) })
}

// prelu is x, times the slope where x is below 0; the choice takes the same steps for both.
func prelu[T number](x, slope T) T {
	return chosen(x < 0, x*slope, x)
}

// PRelu: x < 0 gives slope x; slope is broadcast to x's shape. Broadcasting goes one way: a slope
// that would make the output larger is refused.
func newPRelu(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	k := try.Get(numeric(s, binaryOf(each(prelu[float32])), binaryOf(each(prelu[float64])),
		binaryOf(each(prelu[int64])), binaryOf(each(prelu[uint64]))))
	return func(c *Call) error {
		if out, err := broadcast(c.In[0].Shape, c.In[1].Shape); err != nil ||
			!slices.Equal(out, c.In[0].Shape) {
			return fmt.Errorf("slope of shape %v cannot be broadcast to the input's %v",
				c.In[1].Shape, c.In[0].Shape)
		}
		return k(c)
	}, nil
}

// Before opset 7 the slope is one number or one per channel (axis 1).
//
// The slope is read as [channels, 1, ...], which aligns it with axis 1.
func newPReluBefore7(s *Spec) (Kernel, error) {
	k := try.Get(newPRelu(s))
	return func(c *Call) error {
		x, slope := c.In[0], c.In[1]
		if slope.Len() > 1 && len(x.Shape) > 2 {
			shape := slices.Repeat([]int{1}, len(x.Shape)-1)
			shape[0] = slope.Len()
			t := try.Get(slope.Reshape(shape...))
			c.In[1] = t
			c.Overwrite[1] = false
		}
		return k(c)
	}, nil
}

// Clip before opset 11: attributes min and max, by default the range of float32. Infinities of
// float32 and float64 thus become the greatest finite number.
func newClipByAttributes(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	lo, hi := s.float("min"), s.float("max")
	most := float64(math.MaxFloat32)
	if s.In[0] == onnx.Float64 {
		most = math.MaxFloat64
	}
	if !s.hasAttr("min") {
		lo = -most
	}
	if !s.hasAttr("max") {
		hi = most
	}
	return floatKernel(s, 2, func(x float64) float64 { return min(max(x, lo), hi) })
}

// greatest is the greatest finite number of the values' type, also where they are computed in
// float32.
func greatest(s *Spec) float64 {
	switch {
	case s.rounded == onnx.Float16:
		return 65504 // (2 - 2^-10) 2^15
	case s.rounded == onnx.BFloat16:
		return (2 - 0x1p-7) * 0x1p127
	case s.In[0] == onnx.Float64:
		return math.MaxFloat64
	}
	return math.MaxFloat32
}

// Clip: min(max(x, lo), hi); bounds are scalars, each may be left out: it is then the type's lowest
// or greatest finite number, which infinities are clipped to. Integers without a bound stay as they
// are.
func newClip(s *Spec) (Kernel, error) {
	most := greatest(s)
	return numeric(s, clipOf[float32](most), clipOf[float64](most), clipOf[int64](0),
		clipOf[uint64](0))
}

// clipOf clips to bounds that are given or, of floats, to most; most 0 is no bound. Where lo > hi
// the upper bound wins. NaN stays NaN: no comparison with it holds.
func clipOf[T number](most float64) Kernel {
	bound := func(t *onnx.Tensor, absent float64) (T, bool) {
		if t == nil {
			return T(absent), absent != 0
		}
		return only[T](t, "a bound"), true
	}
	return func(c *Call) error {
		lo, hasLo := bound(c.in(1), -most)
		hi, hasHi := bound(c.in(2), most)
		return rowOf(2, func(dst, x []T) {
			if hasLo && hasHi && lo <= hi { // without branches, as NaN stays NaN
				if x, ok := any(x).([]float32); ok {
					limit(any(dst).([]float32), x, 1, negativeZero, float32(lo), float32(hi))
					return
				}
				dst = dst[:len(x)]
				for i, v := range x {
					dst[i] = min(max(v, lo), hi)
				}
				return
			}
			for i, v := range x {
				if hasLo && v < lo {
					v = lo
				}
				if hasHi && v > hi {
					v = hi
				}
				dst[i] = v
			}
		})(c)
	}
}
