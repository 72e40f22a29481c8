package privacy

import (
	"math"
	"testing"

	"fmp/models/rng"
)

// TestWidths: counts between those of the grid are not lost: without anything that tells, each
// count of one of two classes is as likely.
func TestWidths(t *testing.T) {
	tot := Totals{Classes: 2, K: 1, Sums: make([]float64, 2), Counts: []float64{500, 500},
		SumVariance: 1e15, CountVariance: 1e15}
	const samples = 2000
	var mean, below float64
	for i, n := range tot.DrawCounts([]float64{1}, samples, rng.New(1, "widths")) {
		if i%2 == 0 {
			mean += n / samples
			if n < 100 {
				below += 1. / samples
			}
		}
	}
	if math.Abs(mean-500) > 15 || math.Abs(below-0.1) > 0.02 {
		t.Errorf("mean count %v, and %v of them below 100; want 500 and .1", mean, below)
	}
}
