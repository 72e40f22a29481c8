package score

import (
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
