package report

import (
	"strings"
	"testing"

	"fmp/pipeline/metric"
)

// TestDirection: the summary says in which direction probabilities err, and says nothing of chance.
func TestDirection(t *testing.T) {
	for _, c := range []struct {
		gap  float64
		want string
	}{{0.131, "too confident by 13.1 points (95% interval 8.1 to 18.1)"},
		{-0.131, "too cautious by 13.1 points (95% interval 8.1 to 18.1)"}, {0.02, ""}, {-0.02, ""}} {
		got := direction("a.onnx",
			metric.Calibration{Gap: c.gap, Chance: 0.03, GapLow: c.gap - 0.05, GapHigh: c.gap + 0.05})
		if !strings.Contains(got, c.want) ||
			c.want != "" && !strings.Contains(got, "fmp calibrate a.onnx LABELLED") ||
			c.want == "" && got != "" {
			t.Errorf("gap %v: %q, want %q", c.gap, got, c.want)
		}
	}
}
