package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/privacy"
)

// predicted are the probabilities that each release's classifier gave its image.
var predicted = map[string][]float64{
	"0.1.0": {0.99585134, 0.00029281236, 0.00008208089, 0.000042002706, 0.000042872853, 0.000004543984,
		0.00006461558, 0.00014605763, 0.0027651791, 0.00070848153},
}

// TestReleases: what releases wrote is read by this version: client graphs, uploads, parts,
// classifiers, signatures, ledgers and runs.
func TestReleases(t *testing.T) {
	folders, err := filepath.Glob("testdata/releases/*")
	if err != nil || len(folders) != len(predicted) {
		t.Fatalf("%d folders, %v; want one of each release that predicted has", len(folders), err)
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir),
			func(t *testing.T) { readRelease(t, dir, predicted[filepath.Base(dir)]) })
	}
}

func readRelease(t *testing.T, dir string, want []float64) {
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) { t.Helper(); refused(t, exitOK, "", args...) }
	probabilities := func(classifier string) []float64 {
		t.Helper()
		got := answer[predictedJSON](t, "predict", classifier, at("image.jpg"), "--engine", "pure", "--json")
		if len(got.Predictions) != 1 || len(got.Predictions[0].Probabilities) != len(want) {
			t.Fatalf("%s: %+v", classifier, got)
		}
		return got.Predictions[0].Probabilities
	}
	for c, p := range probabilities(at("classifier.onnx")) {
		if math.Abs(p-want[c]) > 1e-5 {
			t.Errorf("class %d has the probability %v; it had %v", c, p, want[c])
		}
	}
	// The same uploads give a classifier of the same class; a later version may fit a better one.
	for name, files := range map[string][]string{"uploads": {at("shop-1.upload"), at("shop-2.upload")},
		"part": {at("all.part")}} {
		next := filepath.Join(t.TempDir(), "next.onnx")
		run(append([]string{"pool", "--client-graph", at("client.onnx"), "-o", next, "--engine", "pure",
			"--posterior.samples", "4"}, files...)...)
		if p := probabilities(next); p[0] < 0.9 {
			t.Errorf("%s: the image of a 0 is one with probability %v", name, p[0])
		}
	}
	run("pool", at("private.upload"), "--client-graph", at("private.onnx"), "--round", "7", "-o",
		filepath.Join(t.TempDir(), "p.onnx"), "--engine", "pure")
	run("verify", at("classifier.onnx"), "--key", at("key.pub"))
	kept := filepath.Join(t.TempDir(), "run") // tables are made anew beside the figures
	must.Do(t, os.CopyFS(kept, os.DirFS(at("run"))))
	run("results", "show", kept)
	ledger := must.Get(os.ReadFile(at("ledger")))(t)
	if found, err := privacy.Find(ledger, privacy.Spending{}); err != nil || found != nil {
		t.Errorf("the ledger gives %v, %v", found, err)
	}
}
