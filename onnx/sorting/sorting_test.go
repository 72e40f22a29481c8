package sorting

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Both give the order of package slices, equal elements included, at lengths for which it inserts,
// partitions and sorts by a heap.
func TestEqualsSlices(t *testing.T) {
	type pair struct{ key, at int }
	compare := func(a, b pair) int { return a.key - b.key }
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 12, 13, 50, 1000, 5000} {
		for _, keys := range []int{1, 3, n + 1} {
			in := make([]pair, n)
			for i := range in {
				in[i] = pair{r.IntN(keys), i}
			}
			for _, c := range []struct {
				name       string
				own, other func([]pair, func(a, b pair) int)
			}{{"By", By[pair], slices.SortFunc[[]pair]},
				{"Stably", Stably[pair], slices.SortStableFunc[[]pair]}} {
				got, want := slices.Clone(in), slices.Clone(in)
				c.own(got, compare)
				c.other(want, compare)
				if !slices.Equal(got, want) {
					t.Errorf("%s of %d elements with %d keys differs from package slices", c.name, n, keys)
				}
			}
		}
	}
}
