package classify

import (
	"slices"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx/must"
)

// TestDistinct: copies of an image under its label count once, also in another batch; images under two
// labels and feature rows count as often as they come, and the caller's predictions stay as they are.
func TestDistinct(t *testing.T) {
	of := func(label int, pixels ...uint8) Prediction {
		return Prediction{Item: imagefile.Item{Label: label}, Pixels: pixels, Probabilities: []float32{.5, .5}}
	}
	all := [][]Prediction{{of(0, 1), of(0, 1), of(1, 1)}, {of(0), of(0)}, {of(0, 2), of(0, 1), of(1, 1)}}
	s := must.Get((&Classifier{Manifest: models.Manifest{C: 2}}).Scores())(t)
	n := 0
	first, copies := Distinct(func(ps []Prediction) error { n += len(ps); return nil })
	for _, ps := range all {
		was := slices.Clone(ps)
		must.Do(t, s.Add(ps))
		must.Do(t, first(ps))
		for i := range ps {
			if ps[i].Label != was[i].Label || !slices.Equal(ps[i].Pixels, was[i].Pixels) {
				t.Errorf("prediction %d is another: %+v", i, ps[i])
			}
		}
	}
	if n != 5 || *copies != 3 || *s.Copies != 3 {
		t.Errorf("%d images, %d copies, and %d of scores; want 5 and 3", n, *copies, *s.Copies)
	}
}
