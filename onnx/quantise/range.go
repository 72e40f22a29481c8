package quantise

import (
	"errors"
	"math"

	"fmp/onnx"
)

// Method says how the range of a value is taken from the images.
type Method string

// The methods.
const (
	MSE        Method = "mse"        // the range with the least squared error of the numbers seen
	Percentile Method = "percentile" // without the outermost numbers: Options.Percentile of them stay
	MinMax     Method = "minmax"     // from the least to the largest
)

// Methods lists the methods.
func Methods() []Method { return []Method{MSE, Percentile, MinMax} }

// bins of a histogram of the numbers that a value has. Eight bins for each of the 256 quanta.
const bins = 2048

// span has the ends and the histogram of a value. Memory is 16 KiB a value, whatever the number of
// images.
type span struct {
	lo, hi float64 // of all numbers, and 0
	count  [bins]int64
}

// widen takes in numbers, infinite ones too; it refuses those that are none.
func (s *span) widen(x []float32) error {
	for _, v := range x {
		if math.IsNaN(float64(v)) {
			return errors.New("a number is NaN; quantise a model whose values are numbers on these images")
		}
		s.lo, s.hi = min(s.lo, float64(v)), max(s.hi, float64(v))
	}
	return nil
}

// add counts numbers that widen has seen before; a value that is 0 throughout is not counted.
func (s *span) add(x []float32) {
	// The scale is infinite where every number is 0.
	scale := bins / (s.hi - s.lo)
	if math.IsInf(scale, 0) || math.IsNaN(scale) {
		return
	}
	for _, v := range x {
		s.count[min(bins-1, max(0, int((float64(v)-s.lo)*scale)))]++
	}
}

// bounds returns the range to be stored.
func (s *span) bounds(o Options) (lo, hi float64) {
	switch o.Method {
	case Percentile:
		return s.inner((1 - o.Percentile/100) / 2)
	case MSE:
		return s.least()
	}
	return s.lo, s.hi
}

// inner leaves a share out at each end that is not 0.
func (s *span) inner(share float64) (lo, hi float64) {
	var all int64
	for _, n := range s.count {
		all += n
	}
	width := (s.hi - s.lo) / bins
	// most is how many numbers may be left out at an end.
	most := int64(share * float64(all))
	lo, hi = s.lo, s.hi
	if s.lo < 0 {
		for i, out := 0, int64(0); i < bins && out+s.count[i] <= most; i++ {
			out += s.count[i]
			// An end does not go beyond 0, which lies in every range.
			lo = min(0, s.lo+float64(i+1)*width)
		}
	}
	if s.hi > 0 {
		for i, out := bins-1, int64(0); i >= 0 && out+s.count[i] <= most; i-- {
			out += s.count[i]
			hi = max(0, s.lo+float64(i)*width)
		}
	}
	return lo, hi
}

// least tries shares of the range, and returns the one with the least squared error: step²/12
// within, the distance to the end beyond. A uniform error within a step has the variance step²/12.
func (s *span) least() (lo, hi float64) {
	best := math.Inf(1)
	width := (s.hi - s.lo) / bins
	for share := 1.0; share > .2; share -= .02 {
		a, b := share*s.lo, share*s.hi
		step := (b - a) / 255
		sum := 0.0
		for i, n := range s.count {
			if n == 0 {
				continue
			}
			// x is the middle of the bin, for all numbers in it.
			x := s.lo + (float64(i)+.5)*width
			off := max(a-x, x-b, 0)
			sum += float64(n) * (off*off + step*step/12)
		}
		if sum < best {
			best, lo, hi = sum, a, b
		}
	}
	return lo, hi
}

// coarse reports whether bytes hold little of the numbers: they lie in a few quanta, as where some
// are of a mask that a softmax takes out. Fewer than 16 quanta in use, or an eighth of the numbers
// where these are few, counts as little.
func (s *span) coarse(o Options) bool {
	lo, hi := s.bounds(o)
	width, step := (s.hi-s.lo)/bins, (hi-lo)/255
	var used [256]bool
	var all, quanta int64
	for i, n := range s.count {
		x := s.lo + (float64(i)+.5)*width
		if k := min(255, max(0, int((x-lo)/step))); n > 0 && !used[k] {
			used[k] = true
			quanta++
		}
		all += n
	}
	return 8*quanta < min(all, 128)
}

// quanta returns the scale and zero point of unsigned bytes for numbers from lo to hi, 0 among
// them. q = round(x / scale) + zero, so that 0 is exact, as padding and Relu need.
func quanta(lo, hi float64) (scale float32, zero uint8) {
	scale = float32((hi - lo) / 255)
	if !(scale > 1e-30) { // a value that is always 0
		scale = 1
	}
	return scale, uint8(min(255, max(0, math.RoundToEven(-lo/float64(scale)))))
}

// signed stores weights in signed integers of some bits, with a scale for each position of axis; 4
// bits try smaller ranges, and take the one with the least squared error. Zero points are 0: q =
// round(w / scale) from -most to most, which leaves the least integer unused.
func signed(w *onnx.Tensor, axis, bits int) (q []int8, scales []float32) {
	x := w.F32()
	q, scales = make([]int8, len(x)), make([]float32, w.Shape[axis])
	part := make([]float32, 0, len(x)/max(1, w.Shape[axis]))
	most := float64(int(1)<<(bits-1) - 1)
	for c := range scales {
		part = part[:0]
		each(w, axis, c, func(i int) { part = append(part, x[i]) })
		scales[c] = scaleOf(part, most, bits < 8)
		each(w, axis, c, func(i int) { q[i] = nearest(x[i], scales[c], most) })
	}
	return q, scales
}

// each calls do with the place of every element of a tensor whose position on axis is c.
func each(t *onnx.Tensor, axis, c int, do func(i int)) {
	inner := 1
	for _, d := range t.Shape[axis+1:] {
		inner *= d
	}
	for at := c * inner; at < t.Len(); at += t.Shape[axis] * inner {
		for i := at; i < at+inner; i++ {
			do(i)
		}
	}
}

// nearest returns the quantum of a number. Ties go to the even integer, as QuantizeLinear rounds.
func nearest(x, scale float32, most float64) int8 {
	return int8(min(most, max(-most, math.RoundToEven(float64(x)/float64(scale)))))
}

// scaleOf returns the scale of some weights: that of the largest, or, where search is set, the one
// of the least squared error. Weights that are all 0, or one of which is infinite, get the scale 1.
func scaleOf(x []float32, most float64, search bool) float32 {
	largest := 0.0
	for _, v := range x {
		largest = max(largest, math.Abs(float64(v)))
	}
	scale := float32(largest / most)
	if !(scale > 1e-30) || math.IsInf(float64(scale), 0) {
		return 1
	}
	best, found := math.Inf(1), scale
	for share := float32(1); search && share > .6; share -= .04 {
		sum := 0.0
		for _, v := range x {
			d := float64(v) - float64(share*scale)*float64(nearest(v, share*scale, most))
			sum += d * d
		}
		if sum < best {
			best, found = sum, share*scale
		}
	}
	return found
}
