package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/lab/report"
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
		rows := run.Tables[0].Rows
		r := rows[slices.IndexFunc(rows, func(r report.Row) bool { return r.Method == method })]
		said := fmt.Sprintf("%.4f %.4f %.4f %.4f", r.ACC.Mean, r.ECE.Mean, r.NLL.Mean, r.Brier.Mean)
		if is := fmt.Sprintf("%.4f %.4f %.4f %.4f", got.ACC, got.ECE, got.NLL, got.Brier); is != said {
			t.Errorf("%s: ACC, ECE, NLL and Brier are %s; the run says %s", method, is, said)
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
			text := read(t, at(name))
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", name, want)
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

// TestClientFolders: all folders are clients but hidden ones; files are named as left out, and a
// link is refused.
func TestClientFolders(t *testing.T) {
	for name, x := range map[string]struct {
		folders, files, links []string
		want                  []string // none: an error
		left                  int
	}{
		"folders": {[]string{"b", "a", ".cache"}, []string{"stray.png", "notes.txt", ".DS_Store"}, nil,
			[]string{"a", "b"}, 2},
		"a link":   {[]string{"a"}, nil, []string{"b"}, nil, 0},
		"no other": {[]string{".cache"}, []string{"stray.png"}, nil, nil, 0},
	} {
		dir, far := t.TempDir(), t.TempDir()
		for _, f := range x.folders {
			must.Do(t, os.Mkdir(filepath.Join(dir, f), 0o755))
		}
		for _, f := range x.files {
			must.Do(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
		}
		for _, f := range x.links {
			must.Do(t, os.Symlink(far, filepath.Join(dir, f)))
		}
		got, left, err := clientFolders(dir)
		if !slices.Equal(got, x.want) || (err != nil) != (x.want == nil) || err == nil && left.N != x.left {
			t.Errorf("%s: %v, %v, %v; want %v and %d files", name, got, left, err, x.want, x.left)
		}
		if x.links != nil && !strings.Contains(err.Error(), "is a link") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
