package service

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	for path, want := range map[string]string{"/v2": "fmp serve", "/v2/models/classifier": "images",
		"/v2/models/classifier/ready": "true", "/page/": "page", "/classifier.onnx": string(data)} {
		if w := get(path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %.200s", path, w.Code, w.Body)
		}
	}
	if w := get("/"); w.Header().Get("Location") != "/page/predict.html" {
		t.Errorf("/ leads to %q", w.Header().Get("Location"))
	}
	if w := get("/v1/rounds"); w.Code != http.StatusNotFound {
		t.Errorf("a round where there is none: %d", w.Code)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/predict", strings.NewReader("no image"))
	r.Header.Set("Content-Type", "application/octet-stream")
	if h.ServeHTTP(w, r); w.Code != http.StatusBadRequest {
		t.Errorf("no image: %d %s", w.Code, w.Body)
	}
	if _, _, err := Classifier(eng, []byte("no model"), nil, 0, slog.New(slog.DiscardHandler),
		nil); err == nil {
		t.Error("a file that is no model is taken")
	}
}
