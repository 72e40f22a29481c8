package kernel

import (
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// Softmax, LogSoftmax, Hardmax. From opset 13 on: along one axis (default -1). Before: x is read as
// a matrix [x_0 ... x_{axis-1}, x_axis ...] (default axis 1) and each row is normalised as a whole.
func init() {
	for _, d := range []struct {
		op       string
		f32, f64 func(row []float64)
	}{
		{"Softmax", func(x []float64) { softmax(x, evenExps.row) },
			func(x []float64) { softmax(x, exponents) }},
		{"LogSoftmax", func(x []float64) { logSoftmax(x, evenExp) },
			func(x []float64) { logSoftmax(x, math.Exp) }},
		{"Hardmax", hardmax, hardmax},
	} {
		register(
			Def{Op: d.op, Since: 1, Until: 12, Half: true, New: flatSoftmax(d.f32, d.f64)},
			Def{Op: d.op, Since: 13, Half: true, New: axisSoftmax(d.f32, d.f64)},
		)
	}
}

// exponents replaces numbers by their exponentials.
func exponents(x []float64) {
	for i, v := range x {
		x[i] = math.Exp(v)
	}
}

// softmax replaces x by e^(x - max x) / sum; exp works on the whole row. Less the maximum, no
// exponential overflows and the sum is at least 1. x is not empty; it is left with NaN where it
// holds NaN, or where its largest is infinite.
func softmax(x []float64, exp func([]float64)) {
	top := slices.Max(x)
	for i := range x {
		x[i] -= top
	}
	exp(x)
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	for i := range x {
		x[i] /= sum
	}
}

// logSoftmax replaces x by x - (m + log sum e^(x - m)), m being the largest element. It does not
// take the logarithm of a softmax, which would be -Inf where the softmax underflows. x is not
// empty.
func logSoftmax(x []float64, exp func(float64) float64) {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	sum := 0.0
	for _, v := range x {
		sum += exp(v - top)
	}
	l := top + math.Log(sum)
	for i := range x {
		x[i] -= l
	}
}

// hardmax is 1 at the first of the largest and 0 elsewhere. NaN is above no number, so that one
// counts only where it stands first.
func hardmax(x []float64) {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	clear(x)
	x[best] = 1
}

// axisSoftmax normalises along one axis; lines of float32 that lie in one piece go in vectors. Both
// work on a line in float64; f32 is for float32, where exponentials take the same steps for all
// numbers.
func axisSoftmax(f32, f64 func([]float64)) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		axis := s.int("axis")
		single := alongAxis[float32](axis, func(_, x []float64) { f32(x) })
		if s.Node.Op == "Softmax" {
			single = either(softmaxLines(axis, single), single)
		}
		return numeric(s, single, alongAxis[float64](axis, func(_, x []float64) { f64(x) }))
	}
}

// softmaxLines does the lines along an axis in vectors where each lies in one piece, and else has
// slow work on all. A line lies in one piece where the axes behind have size 1. An error of the
// axis is left to slow, which reports it.
func softmaxLines(axis int, slow Kernel) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		ax, err := axisOf(axis, len(xs))
		if err != nil || product(xs[ax:]) != xs[ax] || c.In[0].Len() == 0 {
			return slow(c)
		}
		x, n := c.In[0].F32(), xs[ax]
		out := try.Get(c.over(0, 0, onnx.Float32, xs))
		o := out.F32()
		c.Parallel(len(x)/n, n*4, func(lo, hi int) {
			softmaxRows(o[lo*n:hi*n], x[lo*n:hi*n], n)
		})
		return nil
	}
}

// flatSoftmax reads x as a matrix, whose rows it normalises. An axis that equals the rank is
// allowed, and makes rows of one element. The output takes the input's shape back without a copy.
// Kernels of a matrix are prepared once, for axis 1.
func flatSoftmax(f32, f64 func([]float64)) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		axis := s.int("axis")
		last := []Kernel{alongAxis[float32](1, func(_, x []float64) { f32(x) }),
			alongAxis[float64](1, func(_, x []float64) { f64(x) })}
		k := try.Get(numeric(s, last...))
		return func(c *Call) error {
			x := c.In[0]
			ax := axis
			if ax < 0 {
				ax += len(x.Shape)
			}
			if ax < 0 || ax > len(x.Shape) {
				_, err := axisOf(axis, len(x.Shape))
				return err
			}
			flat := try.Get(x.Reshape(product(x.Shape[:ax]), product(x.Shape[ax:])))
			// The call's input is replaced for the kernel alone: x itself keeps its shape.
			c.In[0] = flat
			try.Do(k(c))
			out := try.Get(c.Out[0].Reshape(x.Shape...))
			c.Out[0] = out
			return nil
		}, nil
	}
}
