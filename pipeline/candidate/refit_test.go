package candidate

import (
	"context"
	"math"
	"testing"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/erm"
)

// TestFitEnds: a regression on rows that no images make, ten million each and told apart by a direction
// in which they hardly vary, ends at the bound of products, nearer to the minimum than its start.
func TestFitEnds(t *testing.T) {
	const n, k, c, small = 100, 60, 3, 40
	h := &discriminant{basis: &basis{pool: &pool{k: k, c: c}}, precision: make([]float64, k)}
	r, on := rng.New(1, "fit"), &images{}
	for j := range h.precision {
		h.precision[j] = 1
	}
	for i := range n {
		row, label := make([]float64, k), 0
		for j := range k {
			z := 30 * math.Pow(10, -float64(j)/10) * r.NormFloat64()
			for l := range row { // a direction of its own, of a cosine transform
				row[l] += z * math.Cos(math.Pi*float64(j)*(float64(l)+.5)/k)
			}
			if j == small && z > 0 {
				label = 1 + i%2
			}
		}
		on.add(row, 1e7, label)
	}
	p := h.problem(on, make([]float64, c), nil)
	free := must.Get(erm.Solve(context.Background(), p, erm.Options{Threads: 1}))(t)
	bounded := must.Get(erm.Solve(context.Background(), p, erm.Options{Threads: 1, MaxProducts: 500}))(t)
	if free.Products < 600 || !bounded.Stopped || bounded.Products > 500 {
		t.Fatalf("%d products, with a bound %d: the regression is too easy for the test", free.Products,
			bounded.Products)
	}
	begin := float64(n) * 1e7 * math.Log(c)
	if bounded.Objective >= begin {
		t.Errorf("the objective is %g, where it was %g at the start", bounded.Objective, begin)
	}
	l := must.Get(h.fitted(on, make([]float64, c), nil))(t)
	near(t, "bias", l.bias, bounded.Theta.Row(k), 0)
}
