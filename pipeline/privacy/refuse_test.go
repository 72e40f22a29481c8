package privacy

import (
	"math"
	"testing"

	"fmp/onnx/must"
)

// TestRefuses: sizes and norms that make no release, and releases that make no sum, are refused one
// by one.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		classes, k int
		labels     []int
		radius     float64
	}{
		"no class": {0, 2, []int{0}, 1}, "no coordinate": {2, 0, nil, 1},
		"a label too many":    {2, 2, []int{0, 1}, 1},
		"a norm of no number": {2, 2, []int{0}, math.NaN()},
	} {
		w := []float32{1, 2}
		if c.k == 0 {
			w = nil
		}
		must.Refuse(Sum(w, c.labels, c.classes, c.k, c.radius))(t, name)
	}
	must.Refuse(Sum(make([]float32, maxPoints+1), make([]int, maxPoints+1), 2, 1, 1))(
		t, "a point too many: no error")
	for name, r := range map[string]*Release{
		"no class": {K: 2}, "no coordinate": {Classes: 2, Values: make([]int64, 2)},
		"a number too few":   {Classes: 2, K: 2, Values: make([]int64, 5)},
		"a number too small": {Classes: 1, K: 1, Values: []int64{0, -maxEntry - 1}},
		"a number too large": {Classes: 1, K: 1, Values: []int64{maxEntry + 1, 0}},
	} {
		if r.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	must.Do(t, (&Release{Classes: 1, K: 1, Values: []int64{maxEntry, -maxEntry}}).Check())
	a := NewRelease(2, 3) // as many numbers as 4 classes of 1 coordinate
	if a.Add(NewRelease(4, 1)) == nil {
		t.Error("another size with as many numbers: no error")
	}
}
