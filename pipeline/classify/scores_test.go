package classify

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// failing is a session that takes one row a call and fails for a row of ones.
type failing struct{ engine.Session }

func (s failing) Run(ctx context.Context, feeds, fetch map[string]*onnx.Tensor) error {
	if x := feeds["features"]; x.Shape[0] != 1 || x.F32()[0] == 1 {
		return errors.New("failed")
	}
	return s.Session.Run(ctx, feeds, fetch)
}

// TestAlone: counts with noise have an image that the classifier cannot classify as a wrong one, and a
// copy not at all; no image moves another's probabilities. Other counts are none then.
func TestAlone(t *testing.T) {
	heads := onnx.NewTensor([]float64{10, -10, 0, 0}, 1, 2, 2)
	m := must.Get(models.NewClassifier(models.ClassifierParts{Heads: heads},
		models.Manifest{Dx: 1, C: 2, Classes: []string{"a", "b"}}))(t)
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	c := must.Get(New(e, m, must.Get(models.ReadManifest(m))(t)))(t)
	for name, last := range map[string]float32{"a row": 2, "no number": 3e38, "a failure": 1, "a copy": 2.1,
		"NaN": float32(math.NaN())} {
		// four of a, two that are taken for b, and one
		x := onnx.NewTensor([]float32{2.1, 2.2, 2.3, 2.4, -2, -2.1, last}, 7, 1)
		of := c.Through(func(s engine.Session) engine.Session { return failing{s} }).Alone()
		s := must.Get(of.Scores())(t)
		var seen []int
		must.Do(t, of.Rows(t.Context(), x, make([]int, 7), func(ps []Prediction) error {
			seen = append(seen, len(ps))
			return s.Add(ps)
		}))
		n, failed, right := 7, 1, 4
		switch name {
		case "a row":
			failed, right = 0, 5
		case "a copy":
			n, failed = 6, 0
		}
		r := must.Get(s.Report(2, 0, 0))(t)
		if g := r.Groups[0]; s.Failed != failed || g.N != n || *g.Right != right ||
			!slices.Equal(seen, slices.Repeat([]int{1}, n)) {
			t.Errorf("%s: %d failed, %d of %d right in batches of %v", name, s.Failed, *g.Right, g.N, seen)
		}
		if last == 3e38 {
			must.Fail(0, c.Rows(t.Context(), x, nil, func([]Prediction) error { return nil }))(t, "check that the file")
		}
	}
}
