package effect

import (
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
