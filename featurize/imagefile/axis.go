package imagefile

import "math"

// axis is a resize along one dimension, from the pixels of a line to others: antialiased
// Catmull-Rom (cubic convolution, Keys 1981, a = -1/2, widened where it shrinks) in whole numbers.
// A classifier's graph has the same numbers ([models.AnySize]).
type axis struct {
	from     int
	first    []int // of each output: the first input with a weight
	span     int   // weights of an output that may differ from 0, an even number
	taps     int   // weights of an output, a multiple of tapGroup
	weights  []int16
	bits     uint // the sum of an output's weights is 1 << bits
	mirrored bool // outputs lie in the opposite order to inputs
}

const (
	// axisBits are the fractional bits of weights, up to two more where an axis shrinks: sums have
	// 31 bits at most.
	axisBits = 14
	// middleBits are the fractional bits of pixels between the axes.
	middleBits = 6
	// tapGroup is how many weights the lanes of a processor take at once.
	tapGroup = 16
)

// newAxis returns the axis for lines of as many whole pixels.
func newAxis(from, to int, mirrored bool) *axis {
	return newAxisWithin(from, 0, float64(from), to, mirrored)
}

// newAxisWithin returns the axis for the part of a line from begin to end, in pixels. A pixel that
// lies in it in part counts by that part. Let scale be (end-begin)/to and c_i = begin + (i+1/2)
// scale - 1/2. The weight of input j for output i is cubic(|c_i - m_j| min(1, 1/scale)) r_j,
// divided by their sum. Here r_j is the share of pixel j within the part and m_j the middle of that
// share. It costs O(from + to) weights.
func newAxisWithin(from int, begin, end float64, to int, mirrored bool) *axis {
	if mirrored {
		begin, end = float64(from)-end, float64(from)-begin
	}
	scale := float64(end-begin) / float64(to)
	shrink := min(1, 1/scale)
	// The kernel is 0 from 2 on.
	reach := min(int(math.Ceil(2/shrink)), from)
	a := &axis{from: from, first: make([]int, to), bits: axisBits, span: 2 * reach,
		mirrored: mirrored}
	a.taps = (a.span + tapGroup - 1) / tapGroup * tapGroup
	for _, s := range []float64{2, 4} {
		if scale >= s {
			a.bits++
		}
	}
	a.weights = make([]int16, to*a.taps)
	unit := float64(int(1) << a.bits)
	var running []float64
	for i := range to {
		centre := float64(begin+float64((float64(i)+0.5)*scale)) - 0.5
		low := max(0, int(math.Floor(begin)), int(math.Floor(centre))-reach+1)
		high := min(from, int(math.Ceil(end)), int(math.Floor(centre))+reach+1)
		total := 0.0
		running = running[:0]
		for j := low; j < high; j++ {
			left, right := max(float64(j), begin), min(float64(j+1), end)
			middle := float64(float64(left+right)-1) / 2
			total += float64(cubic(float64(math.Abs(centre-middle)*shrink)) * float64(right-left))
			running = append(running, total)
		}
		// Running sums are rounded and not the weights, so that no sum of an output is off by
		// rounding.
		w, before := a.line(i), 0.0
		for j, sum := range running {
			whole := math.Floor(float64(float64(sum/total)*unit) + 0.5)
			w[j] = int16(whole - before)
			before = whole
		}
		a.first[i] = low
		if mirrored {
			for j, k := 0, high-low-1; j < k; j, k = j+1, k-1 {
				w[j], w[k] = w[k], w[j]
			}
			a.first[i] = from - high
		}
	}
	return a
}

// line returns the weights of an output.
func (a *axis) line(i int) []int16 { return a.weights[i*a.taps : (i+1)*a.taps] }

// cubic is the convolution's kernel at t >= 0. The conversions keep compilers from fusing
// operations. It is 1.5 t^3 - 2.5 t^2 + 1 for t < 1, and -0.5 t^3 + 2.5 t^2 - 4 t + 2 for
// t < 2.
func cubic(t float64) float64 {
	switch {
	case t < 1:
		return float64(float64(float64(float64(1.5*t)-2.5)*t)*t) + 1
	case t < 2:
		return float64(float64(float64(float64(float64(-0.5*t)+2.5)*t)-4)*t) + 2
	}
	return 0
}

// middle rounds a sum along the first axis, of pixels of 8 bits. A pixel of 255 is 16320: the
// kernel's overshoot fits 16 bits, and is kept.
func (a *axis) middle(sum int32) int16 {
	shift := a.bits - middleBits
	return int16((sum + 1<<(shift-1)) >> shift)
}

// level rounds a sum along the second axis, of pixels that middle returned. Overshoot is cut off
// here, and not between the axes.
func (a *axis) level(sum int32) uint8 {
	shift := a.bits + middleBits
	return uint8(min(255, max(0, (sum+1<<(shift-1))>>shift)))
}

// addRows adds rows times their weights to sums; a row begins stride values behind the one before.
func addRows[T uint8 | int16](sums []int32, rows []T, stride int, weights []int16) {
	clear(sums)
	for k, v := range weights {
		if v == 0 {
			continue
		}
		w, row := int32(v), rows[k*stride:][:len(sums)]
		for x, p := range row {
			sums[x] += w * int32(p)
		}
	}
}

// alongGo sets sums to an axis's outputs of a row, which has values up to taps behind its end.
func (a *axis) alongGo(sums []int32, row []int16) {
	for i := range sums {
		w := a.weights[i*a.taps:][:a.span]
		p := row[a.first[i]:][:len(w)]
		s := int32(0)
		for j, v := range w {
			s += int32(v) * int32(p[j])
		}
		sums[i] = s
	}
}

// downGo sets dst to the middle of rows times the weights of output i; rows begin with its first
// input.
func downGo[T uint8 | int16](a *axis, dst []int16, sums []int32, rows []T, stride, i int) {
	addRows(sums[:len(dst)], rows, stride, a.line(i)[:a.present(i)])
	for x := range dst {
		dst[x] = a.middle(sums[x])
	}
}

// present returns how many inputs of output i there are.
func (a *axis) present(i int) int { return min(a.span, a.from-a.first[i]) }
