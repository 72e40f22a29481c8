package moments

import "math"

// ln2 in two parts, the first with zeros at its end, so that its multiples by an exponent are
// exact.
const (
	ln2High = 6.93147180369123816490e-01
	ln2Low  = 1.90821492927058770002e-10
)

// taylor has 1/i!, the highest first.
var taylor = func() (c [14]float64) {
	f := 1.0
	for i := range c {
		c[len(c)-1-i] = 1 / f
		f *= float64(i + 1)
	}
	return c
}()

// exponential returns e^x for x of at most 0, within 2 units in the last place. math.Exp has other
// bits on other machines; this is sums and products that are rounded one by one.
// With e = round(x/ln 2) and r = x - e ln 2,
//
//	e^x = 2^e sum_i r^i/i!,   i = 0 to 13
//
// whose next term is below 1e-17. Below -700 it is 0, far above subnormal numbers. Conversions to
// float64 keep a compiler from fusing a product with a sum (Go specification, Floating-point
// operators).
func exponential(x float64) float64 {
	if x < -700 {
		return 0
	}
	e := math.RoundToEven(x / math.Ln2)
	r := (x - float64(e*ln2High)) - float64(e*ln2Low)
	p := 0.0
	for _, c := range taylor { // |r| is at most ln2/2
		p = c + float64(r*p)
	}
	return math.Ldexp(p, int(e))
}

// logarithm returns ln x for finite x above 0, as [exponential] the same on every machine.
// With x = 2^e f and s = (f - 1)/(f + 1),
//
//	ln x = e ln 2 + 2 (s + s^3/3 + ... + s^21/21)
//
// whose next term is below 1e-18 of the sum.
func logarithm(x float64) float64 {
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, e = 2*f, e-1
	}
	s := (f - 1) / (f + 1) // ln f = 2 atanh s, |s| at most .172
	square, p := float64(s*s), 0.0
	for i := 21.0; i >= 1; i -= 2 {
		p = 1/i + float64(square*p)
	}
	return float64(float64(e)*ln2High) + (2*float64(s*p) + float64(float64(e)*ln2Low))
}
