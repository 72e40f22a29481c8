package audit

import (
	"math"
	"testing"

	"fmp/models/rng"
)

// TestLowerBound: guesses of a mechanism that answers truly with probability e^eps/(1 + e^eps)
// prove at most eps, nearly always, and not much less where there are many; guesses at random prove
// nothing.
func TestLowerBound(t *testing.T) {
	for _, epsilon := range []float64{0, 0.5, 2, 4} {
		q := 1 / (1 + math.Exp(-epsilon))
		above, sum := 0, 0.0
		const trials = 60
		for trial := range trials {
			r := rng.New(1, "trial", epsilon, trial)
			right := 0
			for range 300 {
				if r.Float64() < q {
					right++
				}
			}
			got := LowerBound(300, 300, right, 1e-9, 0.95)
			if sum += got / trials; got > epsilon {
				above++
			}
		}
		if above > trials/10 {
			t.Errorf("epsilon %v: %d of %d bounds are above it", epsilon, above, trials)
		}
		if sum < 0.7*epsilon-0.1 {
			t.Errorf("epsilon %v: the bounds are %v on average", epsilon, sum)
		}
	}
	if got := LowerBound(2000, 100, 100, 1e-5, 0.95); !(got > 2 && got < 6) {
		t.Errorf("100 of 100 right prove %v", got)
	}
	if with, without := LowerBound(1000, 200, 190, 1e-4, 0.95),
		LowerBound(1000, 200, 190, 1e-12, 0.95); with >= without {
		t.Errorf("a larger delta proves %v, a smaller one %v", with, without)
	}
}
