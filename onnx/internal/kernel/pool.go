package kernel

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// MaxPool, AveragePool, LpPool over windows as in newWindow; GlobalMaxPool, GlobalAveragePool,
// GlobalLpPool over all spatial axes. x [n, c, in...] gives [n, c, out...], out as in window.fit
// (ceil_mode = 0).
func init() {
	register(
		Def{Op: "MaxPool", Since: 1, Half: true, New: newMaxPool},
		Def{Op: "AveragePool", Since: 1, Half: true, New: newAveragePool},
		Def{Op: "LpPool", Since: 2, Half: true, New: newLpPool},
		Def{Op: "GlobalMaxPool", Since: 1, Half: true, New: newGlobalMax},
		Def{Op: "GlobalAveragePool", Since: 1, Half: true, New: newGlobalAverage},
		Def{Op: "GlobalLpPool", Since: 2, Half: true, New: newGlobalLp},
	)
}

// poolWindow is the window of a pooling's attributes.
func poolWindow(s *Spec) window {
	w := newWindow(s)
	if w.ceil = s.bool("ceil_mode"); w.size == nil {
		try.Fail("kernel_shape is missing")
	}
	return w
}

// MaxPool: storage_order = 0 (row-major indices) or 1 (column-major, of the plane). Padding never
// wins. NaN wins over all numbers. Indices count elements of the whole input, not of a plane.
func newMaxPool(s *Spec) (Kernel, error) {
	w := poolWindow(s)
	column := s.int("storage_order") != 0
	return numeric(s, maxPool[float32](w, column), maxPool[float64](w, column),
		maxPool[int64](w, column))
}

// poolShape checks the rank of x and the size of the window, and fits it. win is not changed; the
// fitted copy is the call's.
func poolShape(win window, x []int) (window, []int, error) {
	if len(x) < 3 {
		return win, nil, fmt.Errorf("input of shape %v: [n, channels, axes...] is expected", x)
	}
	if n, err := onnx.Elements(win.size); err != nil || n > maxWindow {
		return win, nil, fmt.Errorf("kernel_shape %v has more than %d elements",
			win.size, maxWindow)
	}
	return win.fit(x[2:])
}

// maxWindow bounds the elements of a pooling window.
const maxWindow = 1 << 24

// visit calls f with the offset, in its plane, of each input position under the window at output
// position p, from axis k on; off is the offset of the axes before it. Taps in the padding take no time.
func visit(w *window, in, p []int, k, off int, f func(off int)) {
	if k == len(in) {
		f(off)
		return
	}
	start, lo, hi := w.taps(k, p[k], in[k])
	for t := lo; t < hi; t++ {
		visit(w, in, p, k+1, off*in[k]+start+t*w.dilation[k], f)
	}
}

// maxPool goes through the window of every output, O(outputs · taps). Windows of few taps in
// float32 go by runs of a plane instead. Among equals the first element of the window is the index.
// A window that sees padding alone is an error.
func maxPool[T number](win window, column bool) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		w, sp := try.Get2(poolShape(win, xs))
		shape := append([]int{xs[0], xs[1]}, sp...)
		out := try.Get(c.New(0, c.In[0].DType, shape))
		var idx []int64
		if c.wants(1) {
			t := try.Get(c.New(1, onnx.Int64, shape))
			idx = t.I64()
		}
		x, o, in := data[T](c.In[0]), data[T](out), xs[2:]
		size, pos, q := product(in), product(sp), product(w.size)
		if len(o) == 0 {
			return nil
		}
		if x, ok := any(x).([]float32); ok && idx == nil && len(in) <= 2 && q <= manyTaps &&
			seesPlane(w, in, sp) {
			maxOfRuns(c, any(o).([]float32), x, xs, sp, w, float32(math.Inf(-1)), tapMaxima)
			return nil
		}
		c.Parallel(xs[0]*xs[1], work(pos, q), func(lo, hi int) {
			base, at := make([]int, len(in)), make([]int, len(in))
			for pl := lo; pl < hi; pl++ {
				plane := x[pl*size : (pl+1)*size]
				for p := 0; p < pos; p++ {
					unravel(base, p, sp)
					best := -1
					var v T
					visit(&w, in, base, 0, 0, func(off int) {
						if best < 0 || plane[off] > v || plane[off] != plane[off] {
							best, v = off, plane[off]
						}
					})
					if best < 0 {
						try.Fail("the window at output %v lies in the padding alone", base)
					}
					o[pl*pos+p] = v
					if idx != nil {
						if column {
							// In column-major order the first axis runs fastest.
							unravel(at, best, in)
							best = 0
							for k := len(in) - 1; k >= 0; k-- {
								best = best*in[k] + at[k]
							}
						}
						idx[pl*pos+p] = int64(pl*size + best)
					}
				}
			}
		})
		return nil
	}
}

// manyTaps is how many elements of a window are not taken run by run any more.
const manyTaps = 64

// seesPlane reports whether every window holds an element of its plane. Along each axis, the first
// tap that is not before the plane must lie in it.
func seesPlane(w window, in, out []int) bool {
	for k := range in {
		for p := range out[k] {
			if _, lo, hi := w.taps(k, p, in[k]); lo >= hi {
				return false
			}
		}
	}
	return true
}

// maxOfRuns pools planes of windows that all see them. least stands in the padding; it is the least
// number of T in the order that maxima has.
func maxOfRuns[T number](c *Call, o, x []T, xs, sp []int, w window, least T,
	maxima func(run, split []T, offsets []int)) {
	p := newPlanes(c, o, x, xs, sp, w)
	p.each(least, func(run, split []T, _ int) { maxima(run, split, p.offsets) }, func([]T, int) {})
}

// meanOfRuns pools planes of windows that lie in them. Windows that count their padding may reach
// into it, as zeros are summed there. Sums are in float32, divided once by the number of taps.
func meanOfRuns(c *Call, o, x []float32, xs, sp []int, w window) {
	// Planes lie under each other as one, as many as the first-level cache holds, where no window
	// reaches from one to the next.
	alone := w.size[0] == w.stride[0] && w.dilation[0] == 1 && w.begin[0] == 0 &&
		sp[0]*w.stride[0] == xs[2]
	xs = append([]int{}, xs...)
	for size := product(xs[2:]); alone && xs[1]%2 == 0 && size <= 2048; size *= 2 {
		xs[1], xs[2], sp[0] = xs[1]/2, 2*xs[2], 2*sp[0]
	}
	p := newPlanes(c, o, x, xs, sp, w)
	ones := make([]float32, len(p.offsets))
	fillRange(ones, 1)
	n := []float32{float32(len(ones))}
	p.each(0, func(run, split []float32, _ int) { tapSums(run, split, p.offsets, ones, 0, false) },
		func(dst []float32, _ int) {
			for i := pairs(quotients, dst, dst, n); i < len(dst); i++ {
				dst[i] /= n[0]
			}
		})
}

// sumUnder is the sum of the elements under a window on two axes, and how many they are.
func sumUnder[T floating](plane []T, in, base []int, w window) (sum float64, n int) {
	y, first, last := w.taps(0, base[0], in[0])
	z, left, right := w.taps(1, base[1], in[1])
	for i := first; i < last; i++ {
		row := plane[(y+i*w.dilation[0])*in[1]:]
		for j := left; j < right; j++ {
			sum += float64(row[z+j*w.dilation[1]])
			n++
		}
	}
	return sum, n
}

// AveragePool: count_include_pad = 0 divides by the elements under the window, 1 by the window's
// size (cut where ceil_mode lets it pass the end of the padding). With count_include_pad = 0 a
// window in the padding alone gives 0 / 0, NaN.
func newAveragePool(s *Spec) (Kernel, error) {
	w := poolWindow(s)
	pads := s.bool("count_include_pad")
	w.counted = pads
	return pooled(s, w, func(sum float64, n, padded int) float64 {
		if pads {
			n = padded
		}
		return sum / float64(n)
	}, nil)
}

// LpPool: p = 2; (sum |x|^p)^(1/p). Padding adds nothing to the sum.
func newLpPool(s *Spec) (Kernel, error) {
	w := poolWindow(s)
	p := float64(s.int("p"))
	return pooled(s, w, func(sum float64, _, _ int) float64 { return math.Pow(sum, 1/p) },
		func(v float64) float64 { return math.Pow(math.Abs(v), p) })
}

// pooled sums term(x), or x where term is nil, under the window and finishes with end(sum, elements
// inside, elements inside the padding).
func pooled(s *Spec, win window, end func(sum float64, n, padded int) float64,
	term func(float64) float64) (Kernel, error) {
	return numeric(s, poolSum[float32](win, end, term), poolSum[float64](win, end, term))
}

// withinPlane says that every window lies in its plane.
func withinPlane(w window, in, out []int) bool {
	for k := range in {
		if w.begin[k] != 0 || (out[k]-1)*w.stride[k]+(w.size[k]-1)*w.dilation[k] >= in[k] {
			return false
		}
	}
	return true
}

// poolSum sums in float64, window by window. Means of few taps in float32 go by runs of a plane
// instead. Each window costs O(taps), with no sums shared between windows: rounding is thus that of
// the window alone.
func poolSum[T floating](win window, end func(float64, int, int) float64,
	term func(float64) float64) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		w, sp := try.Get2(poolShape(win, xs))
		out := try.Get(c.New(0, c.In[0].DType, append([]int{xs[0], xs[1]}, sp...)))
		x, o, in := data[T](c.In[0]), data[T](out), xs[2:]
		size, pos, q := product(in), product(sp), product(w.size)
		if len(o) == 0 {
			return nil
		}
		if x, ok := any(x).([]float32); ok && term == nil && len(in) <= 2 && q <= manyTaps &&
			(w.counted && !w.ceil || withinPlane(w, in, sp)) {
			meanOfRuns(c, any(o).([]float32), x, xs, sp, w)
			return nil
		}
		c.Parallel(xs[0]*xs[1], work(pos, q, 2), func(lo, hi int) {
			base := make([]int, len(in))
			for pl := lo; pl < hi; pl++ {
				plane := x[pl*size : (pl+1)*size]
				for p := 0; p < pos; p++ {
					unravel(base, p, sp)
					sum, n := 0.0, 0
					if len(in) == 2 && term == nil {
						sum, n = sumUnder(plane, in, base, w)
					} else {
						visit(&w, in, base, 0, 0, func(off int) {
							v := float64(plane[off])
							if term != nil {
								v = term(v)
							}
							sum += v
							n++
						})
					}
					padded := 1
					for k := range in {
						// taps between the two paddings' ends
						start := base[k]*w.stride[k] - w.begin[k]
						room := in[k] + w.end[k] - start
						padded *= min(w.size[k], (room+w.dilation[k]-1)/w.dilation[k])
					}
					o[pl*pos+p] = T(end(sum, n, padded))
				}
			}
		})
		return nil
	}
}

// maximum is NaN where one of v is. v is not empty.
func maximum[T floating](v []T) float64 { return float64(slices.Max(v)) }

// globalPools: x [n, c, in...] gives [n, c, 1, ..., 1].
func globalPools(s *Spec, f32 func([]float32) float64,
	f64 func([]float64) float64) (Kernel, error) {
	return numeric(s, globalPool(f32), globalPool(f64))
}

// newGlobalMax is NaN of a plane that holds NaN.
func newGlobalMax(s *Spec) (Kernel, error) {
	return globalPools(s, maximum[float32], maximum[float64])
}

// newGlobalAverage sums in float64.
func newGlobalAverage(s *Spec) (Kernel, error) {
	return globalPools(s, mean[float32], mean[float64])
}

// sumLanes is how many sums sum keeps side by side.
const sumLanes = 32

// mean returns the mean of v.
func mean[T floating](v []T) float64 { return sum(v) / float64(len(v)) }

// sum returns the sum of v: of every 32nd number a sum, and the sum of those by halves. Lanes let
// the processor add several numbers in one step, and make rounding errors grow with n / 32.
func sum[T floating](v []T) float64 {
	if v, ok := any(v).([]float32); ok {
		if s, ok := laneSums(v); ok {
			return s
		}
	}
	var lanes [sumLanes]float64
	for i, x := range v {
		lanes[i%sumLanes] += float64(x)
	}
	for n := sumLanes / 2; n > 0; n /= 2 {
		for i := range n {
			lanes[i] += lanes[i+n]
		}
	}
	return lanes[0]
}

// widened is f of numbers in float64.
func widened[T floating](f func([]float64) float64) func([]T) float64 {
	return func(v []T) float64 {
		wide := make([]float64, len(v))
		for i, x := range v {
			wide[i] = float64(x)
		}
		return f(wide)
	}
}

// GlobalLpPool: p = 2; (sum |x|^p)^(1/p), summed in float64.
func newGlobalLp(s *Spec) (Kernel, error) {
	p := float64(s.int("p"))
	f := func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += math.Pow(math.Abs(x), p)
		}
		return math.Pow(sum, 1/p)
	}
	return globalPools(s, widened[float32](f), f)
}

// globalPool gives f of each plane. A plane without elements is refused: no maximum or mean is
// defined of it.
func globalPool[T floating](f func([]T) float64) Kernel {
	return func(c *Call) error {
		xs := c.In[0].Shape
		if len(xs) < 2 {
			return fmt.Errorf("input of shape %v: [n, channels, axes...] is expected", xs)
		}
		size := product(xs[2:])
		if size == 0 {
			return fmt.Errorf("input of shape %v has nothing to pool", xs)
		}
		shape := append([]int{}, xs...)
		for k := 2; k < len(shape); k++ {
			shape[k] = 1
		}
		out := try.Get(c.New(0, c.In[0].DType, shape))
		x, o := data[T](c.In[0]), data[T](out)
		c.Parallel(len(o), size, func(lo, hi int) {
			for i := lo; i < hi; i++ {
				o[i] = T(f(x[i*size : (i+1)*size]))
			}
		})
		return nil
	}
}
