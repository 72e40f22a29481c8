package score

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestEndsOfFewDraws: intervals of any number of draws hold one draw more of the same distribution
// as often as they say, and miss it as often on either side.
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
}

// TestQuantile: of values in any order, with ties and few, quantiles are those of sorted values at
// rank p(n+1).
func TestQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 420; n += 1 + n/9 {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(r.IntN(2*n)) / 7
		}
		sorted := slices.Sorted(slices.Values(values))
		for _, p := range []float64{0, 0.05, 0.1, 0.37, 0.5, 0.63, 0.95, 1} {
			at := min(max(p*float64(n+1), 1), float64(n))
			low, high := sorted[int(at)-1], sorted[int(math.Ceil(at))-1]
			got, want := quantile(values, p), low+(at-math.Floor(at))*(high-low)
			if math.Abs(got-want) > 1e-9 {
				t.Errorf("quantile %v of %d values is %v; want %v", p, n, got, want)
			}
		}
	}
}
