package report

import (
	"strings"
	"testing"

	"fmp/models"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/metric"
)

// TestCardOfIntervals: a model card says how far intervals reach where the predictor has learned it, and nothing of it where not.
func TestCardOfIntervals(t *testing.T) {
	for want, ends := range map[string]*models.Ends{"reach 0.87 half widths down and 1.14 up": {Down: 0.87, Up: 1.14}, "": nil} {
		var b strings.Builder
		r := &evaluate.Result{Images: 1, Origin: models.Origin{Method: "FMP", Ends: ends}}
		r.Uncertainty, r.Risk = &metric.Uncertainty{}, []metric.Risk{{Coverage: 1}}
		if err := Card(&b, "a classifier", "images", r); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), "half widths") != (ends != nil) {
			t.Errorf("ends %v: the card says\n%s", ends, b.String())
		}
	}
}
