package candidate

import (
	"math"
	"slices"
	"testing"

	"fmp/models/rng"
)

// TestShares: evidence that all groups agree on is certain; the same sum of groups that disagree is
// not, and none is even.
func TestShares(t *testing.T) {
	none := []float64{0, 0, 0, 0}
	for _, c := range []struct {
		left       []float64
		from, most float64
	}{
		{[]float64{2, 2, 2, 2}, 0.999, 1}, {[]float64{11, -9, 9, -3}, 0.6, 0.9}, {none, 0.5, 0.5},
		{[]float64{-2, -2, -2, -2}, 0, 0.001}, {[]float64{800, 900, -100, 1000}, 0.98, 1},
	} {
		of := shares([][]float64{none, c.left}, rng.New(1, "shares"))
		if !(of[1] >= c.from-1e-9 && of[1] <= c.most+1e-9) || math.Abs(of[0]+of[1]-1) > 1e-9 {
			t.Errorf("%v: shares %v; want %g to %g of the second", c.left, of, c.from, c.most)
		}
	}
}

// TestWeights: a corpus has its share whatever the number of its candidates, and candidates share
// it by evidence.
func TestWeights(t *testing.T) {
	of := func(score float64, corpus bool) rated { return rated{score, []float64{score / 2, score / 2}, corpus} }
	alone := weights([]rated{of(-9, false), of(-8, true)}, &Options{})
	more := weights([]rated{of(-9, false), of(-8, true), of(-10, true), of(-40, false)}, &Options{})
	same := math.Abs(more[0]/more[1]-alone[0]/alone[1]) < 1e-9
	if !same || math.Abs(more[2]/more[1]-math.Exp(-1)) > 1e-9 || slices.Max(more) != 1 {
		t.Errorf("weights %v and, beside more candidates, %v", alone, more)
	}
}

// TestCorporaInTheirCoordinates: a candidate of any target reads the corpus in the coordinates in
// which it varies.
func TestCorporaInTheirCoordinates(t *testing.T) {
	of := func(name string, likelihood float64) *Mixture {
		return &Mixture{Evidence: []Evidence{{Name: name, LogLikelihood: likelihood, Weight: 1, left: []float64{likelihood}}}}
	}
	m := of("identity 2", -10).beside(of("identity 0.5", -2), nil, &Options{})
	if e, ok := m.Corpora(); !ok || e != 8 {
		t.Errorf("log evidence of the corpus %g, %v; want 8", e, ok)
	}
}
