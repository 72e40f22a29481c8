package sample

import (
	"slices"
	"testing"
)

// TestThinned: each class keeps the same share of its rows, in whichever order classes lie, and all
// where they are few.
func TestThinned(t *testing.T) {
	for name, labels := range map[string][]int{
		"sorted":      {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2},
		"interleaved": {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2},
	} {
		rows := make([]float32, 2*len(labels))
		for i, y := range labels {
			rows[2*i], rows[2*i+1] = float32(i), float32(y)
		}
		for n, each := range map[int]int{0: 1, 1: 1, 6: 2, 12: 4, 40: 4} {
			some, of := thinned(rows, labels, n)
			count := make([]int, 3)
			for i, y := range of {
				count[y]++
				if some[2*i+1] != float32(y) {
					t.Errorf("%s, %d at most: row %d is not its label's", name, n, i)
				}
			}
			if len(some) != 2*len(of) || !slices.Equal(count, []int{each, each, each}) {
				t.Errorf("%s, %d at most: %v rows of the classes; want %d of each", name, n, count, each)
			}
		}
	}
}

// TestImagesFit: a hundred classes may hold images, and a thousand may not, nor may few images.
func TestImagesFit(t *testing.T) {
	for _, c := range []struct {
		images, classes int
		fits            bool
	}{{40, 2, true}, {39, 2, false}, {2000, 100, true}, {50_000, 1000, false}} {
		if err := ImagesFit(c.images, c.classes-1, c.classes); (err == nil) != c.fits {
			t.Errorf("%d images of %d classes: %v", c.images, c.classes, err)
		}
	}
}
