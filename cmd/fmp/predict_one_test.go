package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"fmp/onnx/engine"
	"fmp/onnx/engine/ort/orttest"
)

// TestOneImage: one image runs on the pure engine, unless an engine is named or the classifier is
// too much work for it, and has the runtime's probabilities.
func TestOneImage(t *testing.T) {
	orttest.New(t)
	at := func(name string) string { return filepath.Join("testdata", "releases", "0.1.0", name) }
	predict := func(args ...string) string {
		t.Helper()
		out, _ := ran(t, append([]string{"predict", "--json", at("classifier.onnx")},
			args...)...)
		return out
	}
	numbers := func(out string) []float64 {
		t.Helper()
		var got struct {
			Predictions []struct{ Probabilities []float64 }
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Predictions) != 1 {
			t.Fatalf("%s: %v", out, err)
		}
		return got.Predictions[0].Probabilities
	}
	image := at("image.jpg")
	alone, inGo, byRuntime := predict(image), predict(image, "--engine", "pure"),
		predict(image, "--engine", "ort")
	if alone != inGo {
		t.Errorf("one image gives %s, and on the pure engine %s", alone, inGo)
	}
	for c, p := range numbers(byRuntime) {
		if q := numbers(alone)[c]; math.Abs(p-q) > 1e-5 {
			t.Errorf("class %d: %v on the runtime, %v in Go", c, p, q)
		}
	}
	if alone == byRuntime {
		t.Skip("both engines have the same bits: nothing tells which one ran")
	}
	if got := predict(image, "--engine", "auto"); got != byRuntime {
		t.Errorf("--engine auto gives %s, want the runtime's %s", got, byRuntime)
	}
	was := oneImage
	t.Cleanup(func() { oneImage = was })
	if oneImage = (engine.Limits{Work: 1000}); predict(image) != byRuntime {
		t.Error("a classifier of much work does not run on the runtime")
	}
}
