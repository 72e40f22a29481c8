package sample

import (
	"slices"
	"testing"
)

// TestThinned: rows are kept at even steps, with their labels, and all where they are few.
func TestThinned(t *testing.T) {
	rows, labels := []float32{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, []int{0, 1, 2, 3, 4, 5}
	for n, want := range map[int][]int{0: {0}, 1: {0}, 2: {0, 3}, 3: {0, 2, 4}, 6: labels, 9: labels} {
		some, of := thinned(rows, labels, n)
		if !slices.Equal(of, want) || len(some) != 2*len(of) {
			t.Fatalf("%d at most: labels %v of %d numbers; want %v", n, of, len(some), want)
		}
		for i, y := range of {
			if some[2*i] != float32(y) || some[2*i+1] != float32(y) {
				t.Errorf("%d at most: row %d is not its label's", n, i)
			}
		}
	}
}
