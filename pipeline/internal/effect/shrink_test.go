package effect

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
)

// TestShrinkLiar: a client whose class means differ each in its own way is noisy, and has a smaller effect than the mean of its
// differences.
func TestShrinkLiar(t *testing.T) {
	r := rng.New(1, "liar")
	const k = 12
	cells, class := make([][]cell, clients), make([][]float64, classes)
	for y := range class {
		class[y] = normal(r.NormFloat64, k, 2)
	}
	var lies []float64
	for m := range cells {
		shift := normal(r.NormFloat64, k, 0.5)
		for y := range classes {
			x := normal(r.NormFloat64, k, 0.3)
			floats.Add(x, shift)
			floats.Add(x, class[y])
			if m == 0 {
				lie := normal(r.NormFloat64, k, 3)
				floats.Add(x, lie)
				if lies == nil {
					lies = make([]float64, k)
				}
				floats.AddScaled(lies, 1./classes, lie)
			}
			cells[m] = append(cells[m], cell{y, 10, 1, x})
		}
	}
	s, err := shrink(cells, classes, k)
	if err != nil {
		t.Fatal(err)
	}
	for m := 1; m < clients; m++ {
		if s.noise[0] < 10*s.noise[m] {
			t.Errorf("noise of the liar is %.2f, of client %d %.2f", s.noise[0], m, s.noise[m])
		}
	}
	if got, of := floats.Norm(s.shift[0], 2), floats.Norm(lies, 2); got > of/2 {
		t.Errorf("the liar has an effect of %.2f; the mean of its lies is %.2f", got, of)
	}
}

func normal(draw func() float64, k int, by float64) []float64 {
	out := make([]float64, k)
	for j := range out {
		out[j] = by * draw()
	}
	return out
}

// TestShrinkLeftOut: clients that are left out, or that share too few classes, change nothing, however many they are.
func TestShrinkLeftOut(t *testing.T) {
	r := rng.New(1, "left out")
	const k = 5
	var cells [][]cell
	for range clients {
		shift := normal(r.NormFloat64, k, 0.5)
		var own []cell
		for y := range classes {
			x := normal(r.NormFloat64, k, 0.3)
			floats.Add(x, shift)
			x[y%k] += 2
			own = append(own, cell{y, 10, 1, x})
		}
		cells = append(cells, own)
	}
	for _, f := range []form{lowRank, isotropic, none} {
		alone, err := fitted(cells, classes, k, f)
		if err != nil {
			t.Fatal(err)
		}
		beside, err := fitted(append(make([][]cell, clients), cells...), classes, k, f)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := alone.rest, beside.rest; math.Abs(a-b) > 1e-9*a {
			t.Errorf("form %d: effects have variance %g, and %g beside clients that are left out", f, a, b)
		}
		for m, b := range alone.shift {
			if !floats.EqualApprox(b, beside.shift[clients+m], 1e-9) {
				t.Errorf("form %d: effect of client %d is %.3f, and %.3f beside clients that are left out", f, m, b, beside.shift[clients+m])
			}
		}
		if a, b := alone.bound(), beside.bound(); math.Abs(a-b) > 1e-9*math.Abs(a) {
			t.Errorf("form %d: bound %g, and %g beside clients that are left out", f, a, b)
		}
	}
}
