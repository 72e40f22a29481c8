package report

import (
	"regexp"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/metric"
)

// TestCardOfIntervals: a model card says how far intervals reach where the predictor has learned
// it, and nothing of it where not.
func TestCardOfIntervals(t *testing.T) {
	for want, ends := range map[string]*models.Ends{
		"reach 0.87 half widths down and 1.14 up": {Down: 0.87, Up: 1.14}, "": nil} {
		var b strings.Builder
		r := &evaluate.Result{Images: 1, Origin: models.Origin{Method: "FMP", Ends: ends}}
		r.Uncertainty, r.Risk = &metric.Uncertainty{}, []metric.Risk{{Coverage: 1}}
		must.Do(t, Card(&b, "a classifier", "images", r))
		if !strings.Contains(b.String(), want) ||
			strings.Contains(b.String(), "half widths") != (ends != nil) {
			t.Errorf("ends %v: the card says\n%s", ends, b.String())
		}
	}
}

// TestCardOfScaling: a model card says how probabilities were calibrated, with the scores before
// and after.
func TestCardOfScaling(t *testing.T) {
	var b strings.Builder
	r := &evaluate.Result{Origin: models.Origin{Scaling: &models.OriginScaling{Images: 90, From: "own",
		Scaling: models.Scaling{
			Kind: models.Temperature, Factor: []float32{2}}, Before: models.ScalingScores{ECE: 0.139},
		After: models.ScalingScores{ECE: 0.041}}}}
	must.Do(t, Card(&b, "a classifier", "images", r))
	for _, want := range []string{"on 90 labelled images of own by a temperature of 0.5",
		"| before | 0.0000 | 0.1390 |", "| after | 0.0000 | 0.0410 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the card lacks %q:\n%s", want, b.String())
		}
	}
}

// TestHostileCard: names of classes, files and clients are text and nothing else in a model card
// and in a page.
func TestHostileCard(t *testing.T) {
	const evil = "</td><script>alert(1)</script>[x](javascript:y)|**b**\n# head\x1b[2J"
	r := &evaluate.Result{Images: 1, Classes: []string{evil, "b"}, Confusion: [][]int{{1, 0}, {0, 0}},
		ByClass: []evaluate.Class{{Name: evil, Images: 1}, {Name: "b"}},
		Origin: models.Origin{Method: "FMP", Client: evil, Predictor: evil,
			Clients: []models.OriginClient{{Name: evil, N: 1}}},
		File: evil,
		Sure: []evaluate.Example{{File: evil, Truth: evil, Says: "b"}}}
	r.Manifest.Licence, r.Manifest.TrainingData, r.Manifest.Extractor = evil, evil, evil
	r.Uncertainty, r.Risk = &metric.Uncertainty{}, []metric.Risk{{Coverage: 1}}
	r.Origin.Scaling, r.Calibration.Gap = &models.OriginScaling{Scaling: models.Scaling{Kind: evil},
		From: evil}, 0.5
	var card, page strings.Builder
	must.Do(t, Card(&card, evil, evil, r))
	plain := regexp.MustCompile(`\\.`).ReplaceAllString(card.String(), "")
	for _, not := range []string{"<", "](", "**b**", "\n# head", "\x1b"} {
		if strings.Contains(plain, not) {
			t.Errorf("the card has %q:\n%s", not, card.String())
		}
	}
	must.Do(t, EvaluationPage(&page, evil, r))
	if strings.Contains(page.String(), "<script>alert") ||
		strings.Contains(page.String(), "</td><script") {
		t.Error("the page has an element of a class's name")
	}
}
