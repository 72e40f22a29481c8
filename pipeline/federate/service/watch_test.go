package service

import (
	"bytes"
	"image"
	"image/png"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
)

// TestWatch: each prediction is counted once under /metrics, by class, confidence and entropy, and the test of drift sees it; it is left to
// people where it is less sure than asked.
func TestWatch(t *testing.T) {
	countedOpen(t, 0, "fmp_predictions_open_total 0")
	countedOpen(t, 1, "fmp_predictions_open_total 3")
}

func countedOpen(t *testing.T, reject float64, open string) {
	t.Helper()
	f, _ := serving(t)
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	h, end, err := Classifier(eng, f.srv.predictions.serving.data, nil, reject, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 28, 28))); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/v1/predict", bytes.NewReader(picture.Bytes()))
		r.Header.Set("Content-Type", "image/png")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{open, "fmp_prediction_confidence_count 3", "fmp_prediction_entropy_nats_count 3", "fmp_drift_images 3",
		`"} 3`, "fmp_prediction_disagreement_nats_count 3", "fmp_drift_wealth_decades 0", `fmp_predictions_total{class="other"} 0`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("/metrics lacks %q:\n%.3000s", want, w.Body)
		}
	}
}
