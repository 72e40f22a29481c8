package score

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestEndsOfFewDraws: intervals of any number of draws hold one draw more of the same distribution
// as often as they say, and miss it as often on either side. Of two draws they end at these.
func TestEndsOfFewDraws(t *testing.T) {
	const rounds = 40000
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{leastHeads, 20, 33, 100} {
		below, above := 0.0, 0.0
		values := make([]float64, n)
		for range rounds {
			for i := range values {
				values[i] = r.Float64()
			}
			low, high := ends(values)
			switch v := r.Float64(); {
			case v < low:
				below += 1.0 / rounds
			case v > high:
				above += 1.0 / rounds
			}
		}
		if math.Abs(below-.05) > .005 || math.Abs(above-.05) > .005 {
			t.Errorf("%d draws: %.4f lie below, %.4f above; want .05 each", n, below, above)
		}
	}
	if low, high := ends([]float64{3, 1}); low != 1 || high != 3 {
		t.Errorf("the ends of 3 and 1 are %v and %v", low, high)
	}
}
