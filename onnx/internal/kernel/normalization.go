package kernel

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// BatchNormalization, InstanceNormalization, LayerNormalization, GroupNormalization,
// LpNormalization, LRN, MeanVarianceNormalization. Statistics are taken in float64.
func init() {
	register(
		Def{Op: "BatchNormalization", Since: 6, Half: true, New: newBatchNormalization},
		Def{Op: "InstanceNormalization", Since: 6, Half: true, New: newInstanceNormalization},
		Def{Op: "LayerNormalization", Since: 17, Half: true, OutType: stashType,
			New: newLayerNormalization},
		Def{Op: "GroupNormalization", Since: 21, Half: true, New: newGroupNormalization},
		Def{Op: "LpNormalization", Since: 1, Half: true, New: newLpNormalization},
		Def{Op: "LRN", Since: 1, Half: true, New: newLRN},
		Def{Op: "MeanVarianceNormalization", Since: 9, Half: true,
			New: newMeanVarianceNormalization},
	)
}

// BatchNormalization, inference: epsilon = 1e-5; out = scale (x - mean) / sqrt(var + epsilon) + b
// per channel (axis 1). Each form of training is refused: is_test before operator set 7,
// training_mode from 14 on, and outputs of statistics.
func newBatchNormalization(s *Spec) (Kernel, error) {
	eps := s.float("epsilon")
	s.ignore("momentum")
	switch {
	case s.Opset == 6:
		s.ignore("consumed_inputs")
		if s.int("is_test") == 0 {
			return nil, fmt.Errorf("the training form (is_test=0) is not supported")
		}
		fallthrough
	case s.Opset < 9:
		if s.int("spatial") != 1 {
			return nil, fmt.Errorf("spatial=0 is not supported")
		}
	case s.Opset >= 14:
		if s.int("training_mode") != 0 {
			return nil, fmt.Errorf("training_mode=1 is not supported")
		}
	}
	if slices.ContainsFunc(s.Node.Outputs[1:], func(o string) bool { return o != "" }) {
		return nil, fmt.Errorf("the statistics of training are not supported")
	}
	return numeric(s, batchNorm[float32](eps), batchNorm[float64](eps))
}

// batchNorm is one product and one sum an element, as [normalizing] folds the statistics into scale
// and shift. Inputs 1 to 4, of one number a channel each, are scale, b, mean and var.
func batchNorm[T floating](eps float64) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		if len(xs) < 1 {
			return fmt.Errorf("the input is a scalar")
		}
		// A vector has one channel.
		ch := 1
		if len(xs) > 1 {
			ch = xs[1]
		}
		for i := 1; i < 5; i++ {
			if c.In[i].Len() != ch {
				return fmt.Errorf("input %d has %d elements for %d channels", i, c.In[i].Len(), ch)
			}
		}
		a, b := normalizing[T](c.In, eps)
		x := data[T](c.In[0])
		out := try.Get(c.over(0, 0, c.In[0].DType, xs))
		o, size := data[T](out), 1
		if len(xs) > 2 {
			size = product(xs[2:])
		}
		if len(o) == 0 {
			return nil
		}
		c.Parallel(len(o)/size, size, func(lo, hi int) {
			for p := lo; p < hi; p++ {
				// Plane p is of channel p mod ch of its image.
				m, k := a[p%ch], b[p%ch]
				src, dst := x[p*size:(p+1)*size], o[p*size:(p+1)*size]
				for i, v := range src {
					dst[i] = m*v + k
				}
			}
		})
		return nil
	}
}

// normalizing is a BatchNormalization with such inputs as v scale + shift, by channel. scale = s /
// sqrt(var + eps) and shift = b - mean scale, in float64, each rounded once to T.
func normalizing[T floating](in []*onnx.Tensor, eps float64) (scale, shift []T) {
	scale, shift = make([]T, in[1].Len()), make([]T, in[1].Len())
	for i := range scale {
		m := in[1].At(i) / math.Sqrt(in[4].At(i)+eps)
		scale[i], shift[i] = T(m), T(in[2].At(i)-in[3].At(i)*m)
	}
	return scale, shift
}

// moments are the mean and the (biased) variance of a run. Two passes do not lose digits where the
// mean is large against the deviation, as E x² - (E x)² would.
func moments[T floating](x []T) (mean, variance float64) {
	for _, v := range x {
		mean += float64(v)
	}
	n := float64(len(x))
	mean /= n
	for _, v := range x {
		d := float64(v) - mean
		variance += float64(d * d) // rounded, so that no processor fuses it
	}
	return mean, variance / n
}

// InstanceNormalization: epsilon = 1e-5; each plane of each image is normalised, then scaled and
// shifted per channel. It is a GroupNormalization of one channel a group.
func newInstanceNormalization(s *Spec) (Kernel, error) {
	s.ignore("consumed_inputs")
	eps := s.float("epsilon")
	group := func(shape []int) int { return shape[1] }
	return numeric(s, groupNorm[float32](eps, group), groupNorm[float64](eps, group))
}

// GroupNormalization: num_groups, epsilon = 1e-5; channels of a group share statistics. Operator
// sets 18 to 20, with a scale for each group, are withdrawn. Statistics are of float64 whatever
// stash_type says.
func newGroupNormalization(s *Spec) (Kernel, error) {
	eps := s.float("epsilon")
	n := s.int("num_groups")
	s.ignore("stash_type")
	if n < 1 {
		return nil, fmt.Errorf("num_groups %d: at least 1 is expected", n)
	}
	group := func(shape []int) int {
		if shape[1]%n != 0 {
			try.Fail("%d channels cannot be divided into %d groups", shape[1], n)
		}
		return n
	}
	return numeric(s, groupNorm[float32](eps, group), groupNorm[float64](eps, group))
}

// groupNorm normalises x in groups(shape) groups of channels a sample; scale and bias are by
// channel. The normalised value is rounded to T before it is scaled. Threads divide the groups of
// all samples.
func groupNorm[T floating](eps float64, groups func([]int) int) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		if len(xs) < 2 {
			return fmt.Errorf("input of shape %v: [n, channels, axes...] is expected", xs)
		}
		g := groups(xs)
		want := xs[1]
		if c.In[1].Len() != want || c.In[2].Len() != want {
			return fmt.Errorf("scale and bias have %d and %d elements where %d are expected",
				c.In[1].Len(), c.In[2].Len(), want)
		}
		x, scale, bias := data[T](c.In[0]), data[T](c.In[1]), data[T](c.In[2])
		out := try.Get(c.New(0, c.In[0].DType, xs))
		o := data[T](out)
		if len(o) == 0 {
			return nil
		}
		size, per := product(xs[2:]), xs[1]/g
		c.Parallel(xs[0]*g, work(per, size, 4), func(lo, hi int) {
			for i := lo; i < hi; i++ {
				block := x[i*per*size : (i+1)*per*size]
				mean, variance := moments(block)
				inv := 1 / math.Sqrt(variance+eps)
				for k, v := range block {
					// Group i of all is group i mod g of its sample, and has `per` channels.
					ch := i%g*per + k/size
					o[i*per*size+k] = T((float64(v)-mean)*inv)*scale[ch] + bias[ch]
				}
			}
		})
		return nil
	}
}

// LayerNormalization: axis = -1, epsilon = 1e-5; over axes axis.. of x together. Further outputs
// are the mean and the inverse standard deviation, of shape [x_0, ..., x_{axis-1}, 1, ..., 1]. The
// variance is biased: over n, not n - 1. stash_type must be 1, float32, the type of the further
// outputs.
func newLayerNormalization(s *Spec) (Kernel, error) {
	axis, eps := s.int("axis"), s.float("epsilon")
	if st := s.int("stash_type"); st != 1 {
		return nil, fmt.Errorf("stash_type %d is not supported", st)
	}
	if s.In[0] == onnx.Float64 && len(s.Out) > 1 {
		return nil, fmt.Errorf("mean and inverse deviation of float64 inputs are not supported")
	}
	return numeric(s, layerNorm[float32](axis, eps), layerNorm[float64](axis, eps))
}

// stashType is the element type of the statistics.
func stashType(s *Spec) (onnx.DType, error) { return s.dtype("stash_type"), nil }

// layerNorm normalises lines of the axes from axis on. Scale and bias are broadcast to a line, or
// to x where one of them has more axes than that.
func layerNorm[T floating](axis int, eps float64) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		ax := try.Get(axisOf(axis, len(xs)))
		norm := xs[ax:]
		// Operands are one for all lines, or have the value's shape where either differs between
		// lines. lines, 0 or 1, is how many lines scale and bias go on from one line of x to the
		// next.
		to, lines := norm, 0
		for _, t := range c.In[1:] {
			if t != nil && len(t.Shape) > len(norm) {
				to, lines = xs, 1
			}
		}
		param := func(i int) []T {
			t := c.in(i)
			if t == nil {
				return nil
			}
			if slices.Equal(t.Shape, to) {
				return data[T](t)
			}
			if b, err := broadcast(t.Shape, to); err != nil || !slices.Equal(b, to) {
				try.Fail("input %d of shape %v cannot be broadcast to the axes %v", i, t.Shape, to)
			}
			full := scratch[T](c, product(to))
			gatherOf(c, full, to, data[T](t), 0, broadcastStrides(t.Shape, to))
			return full
		}
		scale, bias := param(1), param(2)
		out := try.Get(c.New(0, c.In[0].DType, xs))
		stats := append([]int{}, xs...)
		for k := ax; k < len(stats); k++ {
			stats[k] = 1
		}
		var side [2][]T
		for i := range side {
			if c.wants(i + 1) {
				t := try.Get(c.New(i+1, c.In[0].DType, stats))
				side[i] = data[T](t)
			}
		}
		x, o, n := data[T](c.In[0]), data[T](out), product(norm)
		c.Parallel(product(xs[:ax]), n*4, func(lo, hi int) {
			if lines == 0 && side[0] == nil && side[1] == nil && !c.env.Reproducible &&
				normalisedAll(o[lo*n:hi*n], x[lo*n:hi*n], scale, bias, eps) {
				return
			}
			for i := lo; i < hi; i++ {
				src, dst := x[i*n:(i+1)*n], o[i*n:(i+1)*n]
				mean, variance := lineMoments(src, c.env.Reproducible)
				inv := 1 / math.Sqrt(variance+eps)
				more := bias
				if bias != nil {
					more = bias[i*lines*n:][:n]
				}
				normaliseLine(dst, src, scale[i*lines*n:][:n], more, mean, inv)
				if side[0] != nil {
					side[0][i] = T(mean)
				}
				if side[1] != nil {
					side[1][i] = T(inv)
				}
			}
		})
		return nil
	}
}

// normalisedAll is normalisedLines for any numbers: of float64 it returns false.
//
//go:noinline
func normalisedAll[T floating](dst, src, scale, bias []T, eps float64) bool {
	v, ok := any(src).([]float32)
	if !ok {
		return false
	}
	more, _ := any(bias).([]float32)
	return normalisedLines(any(dst).([]float32), v, any(scale).([]float32), more, eps)
}

// lineMoments is moments, in another order of sums where the processor has lanes and bits may be
// its own.
func lineMoments[T floating](x []T, reproducible bool) (mean, variance float64) {
	if v, ok := any(x).([]float32); ok && !reproducible {
		if sum, ok := laneSums(v); ok {
			mean = sum / float64(len(v))
			if sum, ok = deviations(v, mean); ok {
				return mean, sum / float64(len(v))
			}
		}
	}
	return moments(x)
}

// normaliseLine sets dst to (src - mean) factor, rounded, times scale, plus bias where that is not
// nil. The vectors of normalise do the first n numbers, and the loops the rest.
func normaliseLine[T floating](dst, src, scale, bias []T, mean, factor float64) {
	n := 0
	if v, ok := any(src).([]float32); ok {
		more, _ := any(bias).([]float32)
		n = normalise(any(dst).([]float32), v, any(scale).([]float32), more, mean, factor)
	}
	for k, v := range src[n:] {
		dst[n+k] = T((float64(v)-mean)*factor) * scale[n+k]
	}
	for k := n; k < len(bias); k++ {
		dst[k] += bias[k]
	}
}

// LpNormalization: axis = -1, p = 2 (or 1); out = x / (sum |x|^p)^(1/p) along the axis. A line of
// zeros has no direction, and division would make it NaN.
func newLpNormalization(s *Spec) (Kernel, error) {
	axis, p := s.int("axis"), s.int("p")
	if p != 1 && p != 2 {
		return nil, fmt.Errorf("p = %d is neither 1 nor 2", p)
	}
	f := func(_, x []float64) {
		sum := 0.0
		for _, v := range x {
			if p == 1 {
				sum += math.Abs(v)
			} else {
				sum += v * v
			}
		}
		if p == 2 {
			sum = math.Sqrt(sum)
		}
		if sum == 0 {
			return // a zero vector stays one
		}
		for i := range x {
			x[i] /= sum
		}
	}
	return numeric(s, alongAxis[float32](axis, f), alongAxis[float64](axis, f))
}

// LRN: size, alpha = 1e-4, beta = 0.75, bias = 1; with the sum over channels max(0, c - (size-1)/2
// floor) .. min(C-1, c + (size-1)/2 ceil):
//
//	out = x / (bias + alpha / size · sum x²)^beta
//
// It costs O(channels · size) a position, with the sum taken anew for every channel.
func newLRN(s *Spec) (Kernel, error) {
	size, alpha, beta, bias := s.int("size"), s.float("alpha"), s.float("beta"), s.float("bias")
	if size < 1 {
		return nil, fmt.Errorf("size %d: at least 1 is expected", size)
	}
	f := func(sq, x []float64) {
		for i, v := range x {
			sq[i] = v * v
		}
		for i := range x {
			sum := 0.0
			for j := max(0, i-(size-1)/2); j <= min(len(x)-1, i+size/2); j++ {
				sum += sq[j]
			}
			x[i] /= math.Pow(bias+alpha/float64(size)*sum, beta)
		}
	}
	return numeric(s, alongAxis[float32](1, f), alongAxis[float64](1, f))
}

// alongAxis applies f(scratch, line) to every line along an axis; f changes the line. scratch is as
// long as the line and has arbitrary contents; both are one thread's. Lines are copied to float64
// and rounded once, so that the output may take the input's buffer.
func alongAxis[T floating](axis int, f func(scratch, line []float64)) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		ax := try.Get(axisOf(axis, len(xs)))
		x := data[T](c.In[0])
		out := try.Get(c.over(0, 0, c.In[0].DType, xs))
		o := data[T](out)
		if len(o) == 0 {
			return nil
		}
		n, inner := xs[ax], product(xs[ax+1:])
		c.Parallel(product(xs[:ax])*inner, n*16, func(lo, hi int) {
			scratch, row := make([]float64, n), make([]float64, n)
			for i := lo; i < hi; i++ {
				// Line i is number i / inner of the axes before, and i mod inner of those behind.
				at := i/inner*n*inner + i%inner
				for k := range row {
					row[k] = float64(x[at+k*inner])
				}
				f(scratch, row)
				for k, v := range row {
					o[at+k*inner] = T(v)
				}
			}
		})
		return nil
	}
}

// MeanVarianceNormalization: axes = [0, 2, 3]; out = (x - mean) / (deviation + 1e-9). 1e-9 is the
// specification's: it is added to the deviation, not to the variance.
func newMeanVarianceNormalization(s *Spec) (Kernel, error) {
	axes := s.ints("axes")
	if axes == nil {
		axes = []int{0, 2, 3}
	}
	return numeric(s, meanVariance[float32](axes), meanVariance[float64](axes))
}

// meanVariance gathers the elements of each group in a buffer, whose two passes are those of
// moments. Its groups are done one after the other, on one thread.
func meanVariance[T floating](axes []int) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		plan := planReduce(xs, axes)
		out := try.Get(c.New(0, c.In[0].DType, xs))
		x, o := data[T](c.In[0]), data[T](out)
		buf := make([]T, plan.count)
		for i := 0; i < plan.outputs; i++ {
			k := 0
			plan.each(i, func(off int) { buf[k] = x[off]; k++ })
			mean, variance := moments(buf)
			inv := 1 / (math.Sqrt(variance) + 1e-9)
			plan.each(i, func(off int) { o[off] = T((float64(x[off]) - mean) * inv) })
		}
		return nil
	}
}
