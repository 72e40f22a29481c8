package bench

import (
	"context"
	"errors"
	"testing"

	"fmp/featurize/imagefile"
)

// TestPhotos: a large JPEG is reduced and a small one is not, and every photograph has its times.
func TestPhotos(t *testing.T) {
	fit := imagefile.Fit{H: 32, W: 32, Ch: 3}
	photos, err := Photos(t.Context(), fit, []float64{0.01, 0.2}, MinRuns, func(int, int) {})
	if err != nil || len(photos) != 4 {
		t.Fatalf("%d photographs, %v", len(photos), err)
	}
	for i, covers := range [][2]float64{{1, 1}, {1, 1}, {4, 2}, {1, 1}} {
		p := photos[i]
		if p.Covers != covers || p.Bytes == 0 || p.All.Median < 0 || p.Width*3 > p.Height*4+4 {
			t.Errorf("%+v; want pixels of %v", p, covers)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Photos(ended, fit, []float64{0.01}, MinRuns, func(int, int) {}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}
