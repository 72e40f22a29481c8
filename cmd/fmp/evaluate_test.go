package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/evaluate"
)

// TestKeptModelsScoreAsTheRun: the classifiers that a run leaves score on the test images what its
// table says, to the last digit printed; evaluate writes a page and a card; bad input is refused.
func TestKeptModelsScoreAsTheRun(t *testing.T) {
	emptyCache(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	ran(t, "data", "synth", "-o", at("data"), "--train", "800", "--test", "150", "--seed", "3")
	images, labels := at("data/t10k-images-idx3-ubyte"), at("data/t10k-labels-idx1-ubyte")
	run := answer[runOutput](t, "run", "--dataset", at("data"), "--seeds", "1", "--clients", "3",
		"--points", "20", "--methods", "FMP,FMP-ISAB,MP,ANN", "--extractor", shippedFile(t,
			models.KindExtractor), "--predictor", shippedFile(t, models.KindPredictor), "--embedding",
		shippedFile(t, models.KindEmbedding), "--set", "conjugate.model=untrained", "--keep-models",
		"--json", "--out", at("run"))
	if len(run.Models) != 3 {
		t.Fatalf("kept %v, want the three martingale posteriors", run.Models)
	}
	for _, m := range run.Models {
		got := answer[evaluate.Result](t, "evaluate", m, images, "--labels", labels, "--json",
			"--report", at("page.html"), "--card", at("card.md"))
		method := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(m), "homogeneous-shared-"),
			".onnx")
		found := false
		for _, r := range run.Tables[0].Rows {
			if r.Method != method {
				continue
			}
			found = true
			said := fmt.Sprintf("%.4f %.4f %.4f %.4f", r.ACC.Mean, r.ECE.Mean, r.NLL.Mean, r.Brier.Mean)
			if is := fmt.Sprintf("%.4f %.4f %.4f %.4f", got.ACC, got.ECE, got.NLL, got.Brier); is != said {
				t.Errorf("%s: ACC, ECE, NLL and Brier are %s; the run says %s", method, is, said)
			}
		}
		if !found {
			t.Errorf("no row of %s in the table", method)
		}
		n, right := 0, 0
		for y, row := range got.Confusion {
			right += row[y]
			for _, k := range row {
				n += k
			}
		}
		if n != 150 || got.Images != 150 || float64(right)/150 != got.ACC ||
			!(got.ACCLow < got.ACC && got.ACC < got.ACCHigh) {
			t.Errorf("%s: %d images, %d right, ACC %v (%v to %v)", method, n, right, got.ACC,
				got.ACCLow, got.ACCHigh)
		}
		if last := got.Risk[len(got.Risk)-1]; last.Coverage != 1 || last.Risk < 1-got.ACC-1e-9 ||
			last.Risk > 1-got.ACC+1e-9 {
			t.Errorf("%s: the error rate at full coverage is %+v, ACC %v", method, last, got.ACC)
		}
		for name, want := range map[string]string{"page.html": "Surest mistakes",
			"card.md": "3 clients with 60 images"} {
			text, err := os.ReadFile(at(name))
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q (%v)", name, want, err)
			}
			if strings.Contains(string(text), "https://") ||
				strings.Contains(string(text), "<script src") {
				t.Errorf("%s needs the network", name)
			}
		}
	}
	out, _ := ran(t, "evaluate", run.Models[0], images, "--labels", labels)
	if !strings.Contains(out, "of 150 images of 10 classes") || !strings.Contains(out, "confusion") {
		t.Errorf("printed %s", out)
	}
	must.Do(t, os.MkdirAll(at("bad/3"), 0o755))
	for _, name := range []string{"bad/3/one.png", "bad/3/two.jpg"} {
		must.Do(t, os.WriteFile(at(name), []byte("no picture"), 0o644))
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "one.png", []string{run.Models[0], at("bad")}},
		{exitUsage, "two.jpg", []string{run.Models[0], at("bad")}},
		{exitUsage, "--on-bad", []string{run.Models[0], at("bad"), "--on-bad", "ignore"}},
		{exitUsage, "--labels", []string{run.Models[0], images}},
		{exitMissing, "gone", []string{run.Models[0], at("gone")}},
		{exitMissing, "gone.onnx", []string{at("gone.onnx"), images}},
		{exitUsage, "a CLASSIFIER IMAGES", []string{run.Models[0]}},
		{exitUsage, "want the classifier",
			[]string{shippedFile(t, models.KindClient), images, "--labels", labels}},
		{exitUsage, "folders named by class", []string{run.Models[0], t.TempDir()}},
	} {
		refused(t, c.code, c.want, append([]string{"evaluate"}, c.args...)...)
	}
}
