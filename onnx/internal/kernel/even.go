package kernel

import "math"

// Functions whose steps are the same for every number, for results in float32: no branch, loop or
// early return depends on the argument, so that time tells nothing of it, and every processor gets
// the same bits, as sums and products alone are taken. The arguments are numbers of float32, whose
// range float64 exceeds by far: arguments are brought to where the result in float32 is 0, infinite
// or 1.

const (
	log2E = 1 / math.Ln2
	// ln2High has 33 bits, so that products with whole numbers of 11 bits are exact; ln2Low is the
	// rest.
	ln2High = 6.93147180369123816490e-01
	ln2Low  = 1.90821492927058770002e-10
	// roundTo, added to a number and taken away, rounds it to the nearest whole number.
	roundTo = 1.5 * (1 << 52)
)

// evenCurve is a function that has vectors on amd64, with the same bits.
type evenCurve int

const (
	evenExps evenCurve = iota
	evenSigmoids
	evenErfs
)

// slowly is row number by number.
func (f evenCurve) slowly(x []float64) {
	one := [...]func(float64) float64{evenExp, evenSigmoid, evenErf}[f]
	for i, v := range x {
		x[i] = one(v)
	}
}

// kernel is evenKernel of the curve.
func (f evenCurve) kernel(cost int, wide func(float64) float64) func(*Spec) (Kernel, error) {
	return func(s *Spec) (Kernel, error) {
		s.ignore("consumed_inputs")
		return singly(s, rowOf(cost/4, f.single), cost, wide)
	}
}

// single sets dst to the curve of x.
func (f evenCurve) single(dst, x []float32) {
	var room [256]float64
	for len(x) > 0 {
		y := room[:min(len(x), len(room))]
		for i := doubles(y, x); i < len(y); i++ {
			y[i] = float64(x[i])
		}
		f.row(y)
		for i := singles(dst, y); i < len(y); i++ {
			dst[i] = float32(y[i])
		}
		dst, x = dst[len(y):], x[len(y):]
	}
}

// evenGelu sets dst to x / 2 (1 + erf(x / sqrt 2)).
func evenGelu(dst, x []float32) {
	var room [256]float64
	for len(x) > 0 {
		y := room[:min(len(x), len(room))]
		for i, v := range x[:len(y)] {
			y[i] = float64(v) / math.Sqrt2
		}
		evenErfs.row(y)
		for i, erf := range y {
			dst[i] = float32(0.5 * float64(x[i]) * (1 + erf))
		}
		dst, x = dst[len(y):], x[len(y):]
	}
}

// hardSwishSlowly is evenHardSwish number by number.
func hardSwishSlowly(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(hardSwishOf(float64(v)))
	}
}

// within brings x to -most..most; NaN stays NaN.
func within(x, most float64) float64 { return min(max(x, -most), most) }

// horner evaluates c[0] + c[1] x + ..., every product rounded.
func horner(x float64, c []float64) float64 {
	sum := 0.0
	for i := len(c) - 1; i >= 0; i-- {
		sum = float64(sum*x) + c[i]
	}
	return sum
}

// overFactorials are 1/1!, 1/2!, ...: e^r = 1 + r horner(r, overFactorials) for |r| <= ln(2)/2
// within 1e-15.
var overFactorials = func() (c []float64) {
	f := 1.0
	for i := range 12 {
		f /= float64(i + 1)
		c = append(c, f)
	}
	return c
}()

// evenExpm1Parts returns s and q such that e^x = s (1 + q) for |x| <= 110, with |q| < .42.
func evenExpm1Parts(x float64) (s, q float64) {
	x = within(x, 110) // e^110 > 3.4e38, e^-110 < 1.4e-45
	shifted := float64(x*log2E) + roundTo
	k := shifted - roundTo
	r := x - float64(k*ln2High) - float64(k*ln2Low)
	// The lowest bits of shifted are k, of either sign.
	s = math.Float64frombits(uint64(int64(math.Float64bits(shifted)<<48)>>48+1023) << 52)
	return s, float64(r * horner(r, overFactorials))
}

// evenExp is e^x = s + s q.
func evenExp(x float64) float64 {
	s, q := evenExpm1Parts(x)
	return float64(s*q) + s
}

// evenExpm1 is e^x - 1 = s q + (s - 1), which keeps the digits of a small x.
func evenExpm1(x float64) float64 {
	s, q := evenExpm1Parts(x)
	return float64(s*q) + (s - 1)
}

// oddReciprocals are 1, 1/3, 1/5, ...: artanh z = z horner(z², oddReciprocals), for |z| <= 1/3
// within 1e-12.
var oddReciprocals = func() (c []float64) {
	for i := range 12 {
		c = append(c, 1/float64(2*i+1))
	}
	return c
}()

// evenLog1p is log(1 + x) of 0 <= x <= 1.
func evenLog1p(x float64) float64 {
	z := x / (2 + x)
	return 2 * float64(z*horner(float64(z*z), oddReciprocals))
}

// filled is all ones where v is not 0, else all zeros.
func filled(v uint64) uint64 { return uint64(int64(v|-v) >> 63) }

// evenLog is the logarithm of a number that is 0, infinite, NaN or in float64's normal range.
func evenLog(x float64) float64 {
	const root = 0x3fe6a09e667f3bcd // the bits of 1/sqrt 2
	u := math.Float64bits(x)
	k := int64(u-root) >> 52
	m := math.Float64frombits(u - uint64(k)<<52) // in 1/sqrt 2 to sqrt 2
	z := (m - 1) / (m + 1)
	y := float64(float64(k)*ln2High) +
		(2*float64(z*horner(float64(z*z), oddReciprocals)) + float64(float64(k)*ln2Low))
	zero := ^filled(u << 1)
	odd := ^filled(u>>52&0x7ff ^ 0x7ff) // infinite or NaN
	below := uint64(int64(u)>>63) &^ zero
	out := math.Float64bits(y)&^(zero|odd|below) | math.Float64bits(
		math.Inf(-1))&zero | u&odd&^below | math.Float64bits(math.NaN())&below
	return math.Float64frombits(out)
}

// evenTanh is t / (t + 2) for t = e^(2x) - 1. Beyond 20 it is 1 in float32.
func evenTanh(x float64) float64 {
	t := evenExpm1(2 * within(x, 20))
	return t / (t + 2)
}

// evenSigmoid is 1 / (1 + e^-x); [evenExpm1Parts] holds the exponent to where it is finite.
func evenSigmoid(x float64) float64 { return 1 / (1 + evenExp(-x)) }

// evenSoftplus is log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), whose exponential is at most 1. No
// digits are lost for large negative x, where it is e^x.
func evenSoftplus(x float64) float64 { return max(x, 0) + evenLog1p(evenExp(-math.Abs(x))) }

// erfEnd is from where on erf is 1 in float32.
const erfEnd = 4

// erfSeries are the coefficients of erf(x)/x in Chebyshev polynomials of x², 0 to erfEnd², which
// its values at their nodes give; they are a quarter of float32's last place too large, so that erf
// is 1 at the end.
var erfSeries = func() []float64 {
	const n = 48
	c := make([]float64, 20)
	for i := range n {
		angle := math.Pi * (float64(i) + 0.5) / n
		x := math.Sqrt(erfEnd * erfEnd * (1 + math.Cos(angle)) / 2)
		for k := range c {
			c[k] += (2 + 3.2e-8) / n * math.Erf(x) / x * math.Cos(float64(k)*angle)
		}
	}
	c[0] /= 2
	return c
}()

// evenErf is by Clenshaw's recursion.
func evenErf(x float64) float64 {
	x = within(x, erfEnd)
	t := float64(x*x)*(2.0/(erfEnd*erfEnd)) - 1
	var b, before float64
	for k := len(erfSeries) - 1; k > 0; k-- {
		b, before = float64(2*t*b)-before+erfSeries[k], b
	}
	return within(float64(x*(float64(t*b)-before+erfSeries[0])), 1)
}

// evenPow is |x|^y with the sign of x^y, whose steps depend on y alone. It is e^(y log |x|).
func evenPow(x, y float64) float64 {
	if y == 0 || math.IsNaN(y) || math.IsInf(y, 0) {
		return math.Pow(x, y)
	}
	u := math.Float64bits(x)
	sign := u & (1 << 63)
	size := evenExp(float64(y * evenLog(math.Float64frombits(u&^(1<<63)))))
	switch {
	case y != math.Trunc(y): // of numbers below 0 there is none
		below := uint64(int64(u)>>63) & filled(u<<1) & filled(u<<1^0x7ff<<53)
		none := math.Float64bits(math.NaN()) & below
		return math.Float64frombits(math.Float64bits(size)&^below | none)
	case y/2 == math.Trunc(y/2):
		return size
	}
	return math.Float64frombits(math.Float64bits(size) | sign)
}
