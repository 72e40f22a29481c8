package service

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// TestClassifierAlone: a classifier without a round answers under the paths of a round's server,
// gives its file, and leads to the page.
func TestClassifierAlone(t *testing.T) {
	f, _ := serving(t)
	data := f.srv.predictions.serving.data
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("page")) })
	h, end := must.Get2(Classifier(eng, data, page, 0, slog.New(slog.DiscardHandler), nil))(t)
	defer end()
	for path, want := range map[string]string{"/v2": "fmp serve", "/v2/models/classifier": "images",
		"/v2/models/classifier/ready": "true", "/page/": "page", "/classifier.onnx": string(data)} {
		if w := answer(h, http.MethodGet, path, nil); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
		}
	}
	if w := answer(h, http.MethodGet, "/", nil); w.Header().Get("Location") != "/page/predict.html" {
		t.Errorf("/ leads to %q", w.Header().Get("Location"))
	}
	if w := answer(h, http.MethodGet, "/v1/rounds", nil); w.Code != http.StatusNotFound {
		t.Errorf("a round where there is none: %d", w.Code)
	}
	if w := answer(h, http.MethodPost, "/v1/predict", []byte("no image"),
		"Content-Type", "application/octet-stream"); w.Code != http.StatusBadRequest {
		t.Errorf("no image: %d %s", w.Code, w.Body)
	}
	if _, _, err := Classifier(eng, []byte("no model"), nil, 0, slog.New(slog.DiscardHandler),
		nil); err == nil {
		t.Error("a file that is no model is taken")
	}
}
