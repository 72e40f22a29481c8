package score

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
)

// TestQuantile: of values in any order, with ties and few, quantiles are bit for bit those of
// sorted values.
func TestQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 420; n += 1 + n/9 {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(r.IntN(2*n)) / 7
		}
		sorted := slices.Sorted(slices.Values(values))
		for _, p := range []float64{0, 0.05, 0.1, 0.37, 0.5, 0.63, 0.95, 1} {
			if got, want := quantile(values, p),
				stat.Quantile(p, stat.LinInterp, sorted, nil); got != want {
				t.Errorf("quantile %v of %d values is %v; want %v", p, n, got, want)
			}
		}
	}
}
