package report

import (
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/metric"
)

// TestSharesOfNothing: a class without images has no recall, one that is never said no precision,
// and a coverage of few images is told once.
func TestSharesOfNothing(t *testing.T) {
	half := 0.5
	r := &evaluate.Result{Images: 3, Classes: []string{"a", "b"}, ByClass: []evaluate.Class{
		{Name: "a", Images: 3, Recall: &half, Precision: &half}, {Name: "b"}}}
	r.Uncertainty = &metric.Uncertainty{}
	r.Risk = []metric.Risk{{Coverage: 2. / 3, Confidence: 0.9}, {Coverage: 1, Confidence: 0.6, Risk: 0.25}}
	var card, text strings.Builder
	must.Do(t, Card(&card, "a classifier", "images", r))
	must.Do(t, EvaluationText(&text, r))
	for _, x := range []struct{ of, want string }{
		{card.String(), "| a | 3 | 0.500 | 0.500 |"}, {card.String(), "| b | 0 | - | - |"},
		{card.String(), "| 100% | 0.600 | 25.00% |"},
		{text.String(), "0        -          -"}, {text.String(), "is wrong on 25.00%"},
	} {
		if strings.Count(x.of, x.want) != 1 {
			t.Errorf("want %q once:\n%s", x.want, x.of)
		}
	}
}

// TestHostileDataset: a data set's name means nothing in Markdown but itself.
func TestHostileDataset(t *testing.T) {
	ts := tables(t, "we_i<r>d")
	var md strings.Builder
	must.Do(t, Markdown(&md, ts))
	if !strings.HasPrefix(md.String(), `### we\_i\<r\>d, `) || strings.Contains(md.String(), "<r>") {
		t.Errorf("Markdown:\n%.300s", md.String())
	}
}
