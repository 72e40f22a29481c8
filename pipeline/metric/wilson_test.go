package metric

import (
	"math"
	"testing"
)

// TestWilson: intervals that can be looked up (the equation of Wilson 1927, worked out apart).
func TestWilson(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hits, n int
		lo, hi  float64
	}{{8, 10, .490162, .943318}, {0, 10, 0, .277533}, {10, 10, .722467, 1},
		{500, 1000, .469070, .530930}} {
		lo, hi := Wilson(c.hits, c.n, .95)
		if math.Abs(lo-c.lo) > 1e-5 || math.Abs(hi-c.hi) > 1e-5 {
			t.Errorf("%d of %d: %.6f to %.6f, want %.6f to %.6f", c.hits, c.n, lo, hi, c.lo, c.hi)
		}
	}
}
