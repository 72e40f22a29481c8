package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestEven: functions of the same steps for every number are those of package math, but for the
// rounding to float32, over all of float32: every exponent, both signs, zeros, infinities, NaN and
// numbers below the normal range.
func TestEven(t *testing.T) {
	type pair struct{ even, want func(float64) float64 }
	functions := map[string]pair{
		"exp": {evenExp, math.Exp}, "expm1": {evenExpm1, math.Expm1}, "log": {evenLog, math.Log},
		"tanh": {evenTanh, math.Tanh},
		"erf":  {evenErf, math.Erf}, "sigmoid": {evenSigmoid, sigmoid},
		"softplus": {evenSoftplus, softplus},
	}
	for _, y := range []float64{-3, -2, -1, -0.5, 0, 0.3, 0.5, 1, 2, 2.5, 3, 4, 1e9, math.Inf(1)} {
		functions[fmt.Sprint("power ", y)] = pair{func(x float64) float64 { return evenPow(x, y) },
			func(x float64) float64 { return math.Pow(x, y) }}
	}
	for name, f := range functions {
		worst, at := 0.0, float32(0)
		for bits := uint64(0); bits < 1<<32; bits += 9973 {
			// whole powers of 2, 0 and infinities too
			for _, b := range []uint32{uint32(bits), uint32(bits) &^ 0x7fffff} {
				x := math.Float32frombits(b)
				got, want := float32(f.even(float64(x))), float32(f.want(float64(x)))
				if got == want || got != got && want != want {
					continue
				}
				// in units of the last place, or of the least number
				unit := max(math.Abs(float64(want))*0x1p-23, 0x1p-149)
				if d := math.Abs(float64(got)-float64(want)) / unit; !(d <= worst) {
					worst, at = d, x
				}
			}
		}
		if !(worst <= 1) {
			t.Errorf("%s: at %v it is %v, and %v in package math: %.3g units of the last place", name, at,
				float32(f.even(float64(at))), float32(f.want(float64(at))), worst)
		}
	}
}

// TestEvenRows: rows have the bits of the functions number by number, over all of float32 and the
// quotients that come of it, at every place of a row.
func TestEvenRows(t *testing.T) {
	var x []float64
	for bits := uint64(0); bits < 1<<32; bits += 99_991 {
		for _, b := range []uint32{uint32(bits), uint32(bits) &^ 0x7fffff} {
			v := float64(math.Float32frombits(b))
			x = append(x, v, v/math.Sqrt2)
		}
	}
	curves := map[string]evenCurve{"exp": evenExps, "sigmoid": evenSigmoids, "erf": evenErfs}
	for name, f := range curves {
		got, want := slices.Clone(x), slices.Clone(x)
		for at, n := 0, 0; at < len(got); at += n {
			n = min(1+at%23, len(got)-at)
			f.row(got[at : at+n])
		}
		f.slowly(want)
		for i, v := range want {
			if math.Float64bits(got[i]) != math.Float64bits(v) && (v == v || got[i] == got[i]) {
				t.Fatalf("%s of %v is %v in a row, and %v alone", name, x[i], got[i], v)
			}
		}
	}
}

// TestEvenSingles: rows of float32 have the bits of the functions number by number, whatever their
// length, and write nothing behind it.
func TestEvenSingles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 600 {
		x, got := odd(r, n), make([]float32, n+9)
		for i := range x {
			x[i] *= 30
		}
		for _, f := range []evenCurve{evenExps, evenSigmoids, evenErfs} {
			f.single(got[:n], x)
			for i, v := range x {
				one := []float64{float64(v)}
				f.slowly(one)
				if want := float32(one[0]); !sameBits(got[i:i+1], []float32{want}) {
					t.Fatalf("curve %d of %v, %d of %d: %v, want %v", f, v, i, n, got[i], want)
				}
			}
			if !sameBits(got[n:], make([]float32, 9)) {
				t.Fatalf("curve %d wrote behind %d numbers: %v", f, n, got[n:])
			}
		}
	}
}

// TestEvenHardSwish: rows have the bits of the function number by number, over all of float32, at
// every place of a row, and write nothing beside it.
func TestEvenHardSwish(t *testing.T) {
	x := []float32{-3, 3, float32(math.NaN())}
	for bits := uint64(0); bits < 1<<32; bits += 9973 {
		x = append(x, math.Float32frombits(uint32(bits)), math.Float32frombits(uint32(bits)&^0x7fffff))
	}
	for v := float32(-4); v <= 4; v += 1. / 4096 { // around the bends
		x = append(x, math.Nextafter32(v, -9), v, math.Nextafter32(v, 9))
	}
	got, want := make([]float32, len(x)), make([]float32, len(x))
	for at, n := 0, 0; at < len(got); at += n {
		n = min(1+at%23, len(got)-at)
		evenHardSwish(got[at:at+n], x[at:at+n])
		for _, v := range got[at+n : min(at+n+8, len(got))] {
			if v != 0 {
				t.Fatalf("a row of %d numbers writes beside it", n)
			}
		}
	}
	hardSwishSlowly(want, x)
	for i, v := range want {
		if math.Float32bits(got[i]) != math.Float32bits(v) && (v == v || got[i] == got[i]) {
			t.Fatalf("HardSwish of %v is %v in a row, and %v alone", x[i], got[i], v)
		}
	}
}

// TestEvenGelu: GELU is made of evenErf, whatever place of a row a number has.
func TestEvenGelu(t *testing.T) {
	x := make([]float32, 300)
	for i := range x {
		x[i] = float32(i-150) / 32
	}
	got := make([]float32, len(x))
	evenGelu(got, x)
	for i, v := range x {
		want := float32(0.5 * float64(v) * (1 + evenErf(float64(v)/math.Sqrt2)))
		if got[i] != want {
			t.Errorf("GELU of %v is %v, want %v", v, got[i], want)
		}
	}
}
