package kernel

import (
	"math"
	"math/bits"
	"math/cmplx"
	"unsafe"

	"gonum.org/v1/gonum/dsp/fourier"

	"fmp/onnx"
	"fmp/onnx/internal/try"
)

// transform is a Fourier transform of one length, of n log n operations whatever its factors are.
// Its memory is the pool's, and it ends where the run is to end. X_k = sum_j x_j exp(-2πijk/n), in
// float64. Short lengths of small factors go through gonum. Of the others, powers of two go through
// radix 2 and the rest through Bluestein's chirp (1970).
type transform struct {
	c              *Call
	line           []complex128      // is transformed in place
	small          *fourier.CmplxFFT // of short lengths of small factors
	roots          []complex128      // exp(-2πik/size), k < size/2
	chirp          []complex128      // exp(-πik²/n), where the length n is no power of two
	filter, padded []complex128      // of the chirp, and of a line times it
}

// smallLength and smallFactor bound the transforms that gonum does, in time proportional to the
// largest factor and without a look at whether the run is to end.
const smallLength, smallFactor = 1 << 16, 64

// newTransform readies the tables for lines of n numbers, n >= 1. They live until the kernel
// returns and serve any number of lines, one after another.
func newTransform(c *Call, n int) *transform {
	t := &transform{c: c, line: c.complexes(n)}
	if n <= smallLength && largestFactor(n) <= smallFactor {
		t.small = fourier.NewCmplxFFT(n)
		return t
	}
	size := n
	if n&(n-1) != 0 {
		size = 1 << bits.Len(uint(2*n-2)) // holds a line beside its wrapped chirp
	}
	t.roots = c.complexes(size / 2)
	c.pieces(0, len(t.roots), 64, func(lo, hi int) {
		for k := lo; k < hi; k++ {
			t.roots[k] = cmplx.Rect(1, -2*math.Pi*float64(k)/float64(size))
		}
	})
	if size == n {
		return t
	}
	t.chirp, t.filter, t.padded = c.complexes(n), c.complexes(size), c.complexes(size)
	clear(t.filter)
	c.pieces(0, n, 64, func(lo, hi int) {
		for k := lo; k < hi; k++ {
			// exp(-πik²/n) has period 2n in k²: the remainder keeps the angle small, and so its
			// rounding.
			turn := uint64(k) * uint64(k) % uint64(2*n)
			t.chirp[k] = cmplx.Rect(1, -math.Pi*float64(turn)/float64(n))
			t.filter[k] = cmplx.Conj(t.chirp[k])
			// The filter is even, and wraps around as a circular convolution reads it.
			t.filter[(size-k)%size] = t.filter[k]
		}
	})
	t.radix2(t.filter)
	return t
}

// run transforms the line. The inverse is the conjugate of the conjugate's transform, over n. The
// line holds the result afterwards. It is the inverse that is divided by n, as the DFT operator has
// it.
func (t *transform) run(inverse bool) {
	t.c.check()
	n := float64(len(t.line))
	if inverse {
		t.each(t.line, func(_ int, v complex128) complex128 { return cmplx.Conj(v) })
	}
	switch {
	case t.small != nil:
		t.small.Coefficients(t.line, t.line)
	case t.chirp == nil:
		t.radix2(t.line)
	default:
		t.bluestein()
	}
	if inverse {
		t.each(t.line, func(_ int, v complex128) complex128 { return complex(real(v)/n, -imag(v)/n) })
	}
}

// bluestein: with jk = (j² + k² - (k-j)²)/2 a transform is a convolution with a chirp, which two
// transforms of a power of two compute.
func (t *transform) bluestein() {
	clear(t.padded)
	t.each(t.line, func(k int, v complex128) complex128 {
		t.padded[k] = v * t.chirp[k]
		return v
	})
	t.radix2(t.padded)
	t.each(t.padded, func(k int, v complex128) complex128 { return cmplx.Conj(v * t.filter[k]) })
	t.radix2(t.padded)
	size := float64(len(t.padded))
	t.each(t.line, func(k int, _ complex128) complex128 {
		v := cmplx.Conj(t.padded[k]) * t.chirp[k]
		return complex(real(v)/size, imag(v)/size)
	})
}

// each sets x_k to f(k, x_k) in order, and looks in between whether the run is to end.
func (t *transform) each(x []complex128, f func(k int, v complex128) complex128) {
	t.c.pieces(0, len(x), 16, func(lo, hi int) {
		for k := lo; k < hi; k++ {
			x[k] = f(k, x[k])
		}
	})
}

// radix2 transforms x, of as many numbers as there are roots, twice over. It is Cooley and Tukey's
// decimation in time, in place: bit-reversed order first, then log2 n rounds of butterflies a + wb,
// a - wb. It does not divide by the length.
func (t *transform) radix2(x []complex128) {
	shift := bits.LeadingZeros64(uint64(len(x))) + 1
	t.c.pieces(0, len(x), 16, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			if j := int(bits.Reverse64(uint64(i)) >> shift); i < j {
				x[i], x[j] = x[j], x[i]
			}
		}
	})
	for half := 1; half < len(x); half *= 2 {
		t.c.check()
		step := len(t.roots) / half
		t.c.pieces(0, len(x)/2, 16, func(lo, hi int) {
			for j := lo; j < hi; j++ { // pair k of its block
				k := j & (half - 1)
				at := 2*(j-k) + k
				a, b := x[at], x[at+half]*t.roots[k*step]
				x[at], x[at+half] = a+b, a-b
			}
		})
	}
}

// largestFactor is n's largest prime factor.
func largestFactor(n int) int {
	most := 1
	for f := 2; f*f <= n; f++ {
		for ; n%f == 0; n /= f {
			most = f
		}
	}
	return max(most, n)
}

// complexes is memory of n complex numbers, with arbitrary contents, until the kernel returns. It
// reads pairs of float64 from the pool as complex128, which has the same layout: real part first.
func (c *Call) complexes(n int) []complex128 {
	parts := try.Get(c.buffer(onnx.Float64, 2*n)).([]float64)
	return unsafe.Slice((*complex128)(unsafe.Pointer(unsafe.SliceData(parts))), n)
}
