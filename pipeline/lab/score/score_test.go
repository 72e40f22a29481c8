package score

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCovered: intervals are of the first test points, and of evenly spaced ones where a file holds
// images by class.
func TestCovered(t *testing.T) {
	for _, k := range []struct {
		name  string
		n     int
		label func(i int) int
		want  []float32 // of the second and the last row
	}{
		{"few", 5, func(i int) int { return i / 3 }, []float32{2, 3, 8, 9}},
		{"all in the first", 4000, func(i int) int { return min(i/100, 9) }, []float32{2, 3, 1998, 1999}},
		{"by class", 4000, func(i int) int { return i / 400 }, []float32{8, 9, 7992, 7993}},
		{"a last class", 1500, func(i int) int { return i / 1499 }, []float32{2, 3, 2996, 2997}},
	} {
		test, numbers := &Test{}, []float32(nil)
		for i := range k.n {
			test.Labels = append(test.Labels, k.label(i))
			numbers = append(numbers, float32(2*i), float32(2*i+1))
		}
		got := test.covered(numbers)
		if n := 2 * min(k.n, coveragePoints); len(got) != n ||
			!slices.Equal(append(slices.Clone(got[2:4]), got[n-2:]...), k.want) {
			t.Errorf("%s: %d numbers, %v ... %v; want %v", k.name, len(got), got[2:4], got[len(got)-2:], k.want)
		}
	}
}

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
