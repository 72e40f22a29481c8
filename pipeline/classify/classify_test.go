package classify

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
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

// TestSetsInCSV: two sets are never the same text, whatever their classes are called, and plain
// names stand as they are.
func TestSetsInCSV(t *testing.T) {
	for _, c := range []struct {
		names []string
		set   []bool
		want  string
	}{
		{[]string{"a", "b", "c"}, []bool{true, false, true}, "a|c"},
		{[]string{"a", "b"}, []bool{false, false}, ""},
		{[]string{"a|b", "a", "b"}, []bool{true, false, false}, `a\|b`},
		{[]string{"a|b", "a", "b"}, []bool{false, true, true}, "a|b"},
		{[]string{`a\`, "b", `a\|b`}, []bool{true, true, false}, `a\\|b`},
		{[]string{`a\`, "b", `a\|b`}, []bool{false, false, true}, `a\\\|b`},
	} {
		var b bytes.Buffer
		n := len(c.names)
		p := must.Get(NewPrinter(&b, &Classifier{outputs: []string{set},
			Manifest: models.Manifest{C: n, Classes: c.names}}, CSV, 0))(t)
		must.Do(t, p.Print([]Prediction{{Probabilities: make([]float32, n), Set: c.set}}))
		must.Do(t, p.Close())
		rows := must.Get(csv.NewReader(&b).ReadAll())(t)
		if got := rows[1][len(rows[1])-1]; got != c.want {
			t.Errorf("%q of %v: %q; want %q", c.names, c.set, got, c.want)
		}
	}
}

// TestFeatureRows: a row that is not finite is named, before the classifier is blamed for it.
func TestFeatureRows(t *testing.T) {
	for name, x := range map[string]struct {
		rows *onnx.Tensor
		want string // of the error; empty: none
	}{
		"float32":  {onnx.NewTensor([]float32{1, 2, 3, 4}, 2, 2), ""},
		"float64":  {onnx.NewTensor([]float64{1, 2, 3, 4}, 2, 2), ""},
		"none":     {onnx.NewTensor([]float32{}, 0, 2), ""},
		"NaN":      {onnx.NewTensor([]float32{1, 2, 3, float32(math.NaN())}, 2, 2), "row 1 has"},
		"infinite": {onnx.NewTensor([]float32{float32(math.Inf(-1)), 2}, 1, 2), "row 0 has"},
		"too wide": {onnx.NewTensor([]float64{1, 2, 1e300, 4}, 2, 2), "row 1 has"},
		"a vector": {onnx.NewTensor([]float32{1}, 1), "[n, dx]"},
	} {
		if _, err := FeatureRows(x.rows); x.want == "" {
			must.Do(t, err)
		} else {
			must.Fail(0, err)(t, x.want, name)
		}
	}
}

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
			none := func([]Prediction) error { return nil }
			must.Fail(0, c.Rows(t.Context(), x, nil, none))(t, "feature row 6: no finite probabilities: its numbers "+
				"are too large; scale them as the extractor gives them")
			many := onnx.NewTensor(slices.Repeat([]float32{3e38}, 1000), 1000, 1)
			text := c.Rows(t.Context(), many, nil, none).Error()
			if !strings.HasSuffix(text, "\nand 980 more") || strings.Count(text, "\n") != 20 {
				t.Errorf("of 1000 rows: %s", text)
			}
		}
	}
}
