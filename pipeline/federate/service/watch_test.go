package service

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/federate/store"
)

// TestWatch: each prediction is counted once under /metrics, by class, confidence and entropy, and
// the test of drift sees it; it is left to people where it is less sure than asked.
func TestWatch(t *testing.T) {
	f, _ := serving(t)
	data := f.srv.predictions.serving.data
	if got := f.srv.predictions.watch.reject; got != .25 {
		t.Errorf("a round leaves to people what is below %v", got)
	}
	const loading = `fmp_drift_images{reference="start"} 3`
	for _, c := range []struct {
		classifier []byte
		reject     float64
		want       []string
	}{
		{data, 0, []string{"fmp_predictions_open_total 0", loading,
			`fmp_drift_reference_images{reference="start"} 0`}},
		{data, 1, []string{"fmp_predictions_open_total 3", loading,
			`fmp_drift_wealth_decades{reference="start"} `}},
		{calibrated(t, data), 0, []string{`fmp_drift_images{reference="calibration"} 3`,
			`fmp_drift_reference_images{reference="calibration"} 40`,
			`fmp_drift_wealth_decades_highest{reference="calibration"} 0.1`}},
	} {
		countedBy(t, c.classifier, c.reject, c.want)
	}
}

// TestDriftOfVersions: a version's test of drift sees the images that it answers, and none of the version
// before it, which still answers some when the next is there.
func TestDriftOfVersions(t *testing.T) {
	f, dx := serving(t)
	p, images := f.srv.predictions, f.srv.predictions.serving.data
	was := p.serving.drift
	done := make(chan error, 1)
	build := func(*classify.Classifier) (*memory, *onnx.Tensor, error) {
		go func() { done <- p.serve(store.Version{Number: 2}, images, nil) }()
		for p.version().version.Number != 2 {
			runtime.Gosched()
		}
		return nil, onnx.ZerosF32(3, dx), nil
	}
	held := lease{in: p.intake}
	defer held.release()
	must.Do(t, p.run(t.Context(), &held, true, build,
		func(store.Version, *classify.Classifier, []classify.Prediction) error { return nil }))
	must.Do(t, <-done)
	if w := answer(f.srv.Handler(), http.MethodGet, "/metrics", nil); was.Images() != 3 ||
		!strings.Contains(w.Body.String(), `fmp_drift_images{reference="start"} 0`) {
		t.Errorf("the version before saw %d images; /metrics:\n%.3000s", was.Images(), w.Body)
	}
}

// calibrated returns a classifier with the sets of 40 images, all of which it is surer of than of
// any other.
func calibrated(t *testing.T, data []byte) []byte {
	t.Helper()
	m := must.Get(serde.Closed(data))(t)
	m = must.Get(models.WithSets(m,
		models.OriginSets{Level: .9, Images: 40, Top: slices.Repeat([]float32{1}, 40),
			Table: &models.SetTable{Columns: 1, Levels: []float32{1}, Thresholds: []float32{0}}}, false))(t)
	data = must.Get(serde.Marshal(m))(t)
	return data
}

func countedBy(t *testing.T, classifier []byte, reject float64, want []string) {
	t.Helper()
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	h, end := must.Get2(Classifier(eng, classifier, nil, reject, slog.New(slog.DiscardHandler), nil))(t)
	defer end()
	var picture bytes.Buffer
	must.Do(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 28, 28))))
	for range 3 {
		if w := answer(h, http.MethodPost, "/v1/predict", picture.Bytes(),
			"Content-Type", "image/png"); w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		} else if unsure := fmt.Sprintf(`"unsure":%.0f`, reject); !strings.Contains(w.Body.String(), unsure) {
			t.Errorf("below %v left to people: the answer lacks %s: %s", reject, unsure, w.Body)
		}
	}
	w := answer(h, http.MethodGet, "/metrics", nil)
	for _, want := range append(want, "fmp_prediction_confidence_count 3",
		"fmp_prediction_entropy_nats_count 3", `"} 3`,
		"fmp_prediction_disagreement_nats_count 3", `fmp_predictions_total{class="other"} 0`) {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("/metrics lacks %q:\n%.3000s", want, w.Body)
		}
	}
}
