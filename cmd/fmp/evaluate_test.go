package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/models"
	"fmp/onnx/must"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/lab/report"
	sites "fmp/pipeline/tally/pooled"
)

// TestKeptModelsScoreAsTheRun: the classifiers that a run leaves score on the test images what its
// table says, to the last digit printed; evaluate writes a page and a card; bad input is refused.
func TestKeptModelsScoreAsTheRun(t *testing.T) {
	emptyCache(t)
	at := newFolder(t)
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
	must.Do(t, os.Mkdir(at("void"), 0o700))
	t.Chdir(at(""))
	of := "evaluate " + run.Models[0] + " "
	outputstest.CheckWrong(t, []outputstest.Wrong{{of + "bad --on-bad ignore", "--on-bad"},
		{of + images, "--labels"}, {of + "gone", "gone"}, {"evaluate gone.onnx " + images, "gone.onnx"},
		{of + "void", "folders named by class"}}, everything(t))
	for _, name := range []string{"one.png", "two.jpg"} {
		refused(t, exitUsage, name, "evaluate", run.Models[0], "bad")
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

// TestCrossSite: sites score the served classifier on their own images and send signed counts; the
// server's report, that of the files, and the model card say the same, and a report that was
// changed is refused.
func TestCrossSite(t *testing.T) {
	f := newFederation(t, 3, "deadline: 2100-01-01T00:00:00Z\n")
	f.serve()
	f.joins(f.names...)
	f.write("classifier.onnx", f.published(1))
	classifier := f.path("classifier.onnx")
	var reports []string
	for i, name := range f.names {
		images := f.path("site-" + name)
		f.fmp("data", "synth", "-o", images, "--photos", "--train", "10", "--test", "60", "--seed",
			fmt.Sprint(i+1))
		reports = append(reports, "--pool", f.path(name+".json"))
		noise := []string{"--least", "2"}
		if i == 2 {
			noise = []string{"--epsilon", "4", "--ledger", f.path("spent.jsonl")}
		}
		code, out := f.edge(append([]string{"evaluate", "--model", classifier, "--key",
			f.path("keys/" + name + ".key"), "--report-to", "http://" + f.address, "--output",
			f.path(name + ".json"), filepath.Join(images, "test")}, noise...)...)
		if code != 0 || !strings.Contains(out, "round 7 has these counts") ||
			!strings.Contains(out, "images") {
			t.Fatalf("%s: exit code %d: %s", name, code, out)
		}
	}
	_, served := f.get(wire.RoundPath(7) + "/evaluation")
	f.write("pooled.json", served)
	var want sites.Result
	if err := json.Unmarshal(served, &want); err != nil || len(want.Sites) != 3 ||
		want.Sites[2].Sigma == 0 || want.Accuracy.Sites != 3 {
		t.Fatalf("%s: %v", served, err)
	}
	roster := []string{"--roster", f.path("roster.txt")}
	pool := func(args ...string) string {
		return f.fmp(append([]string{"evaluate", classifier, "--engine.name", "pure"}, args...)...)
	}
	var got struct{ Sites sites.Result }
	must.Do(t, json.Unmarshal([]byte(pool(append(append(reports, roster...), "--json")...)), &got))
	a, _ := json.Marshal(got.Sites)
	if b, _ := json.Marshal(want); !bytes.Equal(a, b) {
		t.Errorf("of files\n%s\nand of the server\n%s", a, b)
	}
	for _, args := range [][]string{append(reports, roster...), {"--pooled", f.path("pooled.json")}} {
		text := pool(append(args, "--card", f.path("card.md"))...)
		card := string(read(t, f.path("card.md")))
		for _, part := range []string{"c000", "I²", "Cochran's Q", "a further site"} {
			if !strings.Contains(text, part) || !strings.Contains(card, part) {
				t.Errorf("text or card lacks %q:\n%s\n%s", part, text, card)
			}
		}
	}
	f.write("changed.json", bytes.Replace(read(t, f.path("c000.json")), []byte(`"round": 7`),
		[]byte(`"round": 8`), 1))
	for want, args := range map[string][]string{
		"go together":        {classifier, "--pool", f.path("c000.json")},
		"key that signed it": append([]string{classifier, "--pool", f.path("changed.json")}, roster...),
		"two reports": append([]string{classifier, "--pool", f.path("c000.json"), "--pool",
			f.path("c000.json")}, roster...),
		"both say": append([]string{classifier, "--pool", f.path("c000.json"), "--pooled",
			f.path("pooled.json")}, roster...),
		"no pooled report": {classifier, "--pooled", f.path("c000.json")},
		"--report shows": {classifier, "--pooled", f.path("pooled.json"), "--report",
			f.path("page.html")},
	} {
		refused(t, exitUsage, want, append([]string{"evaluate"}, args...)...)
	}
}

// TestEvaluateNoImages: without IMAGES flags of images are refused, and so is a pooled report that
// no reports give.
func TestEvaluateNoImages(t *testing.T) {
	dir := t.TempDir()
	classifier, pooled := filepath.Join(dir, "c.onnx"), filepath.Join(dir, "pooled.json")
	pooledFrom(t, "digits-color", classifier, "--samples", "3")
	r := sites.Result{Classifier: models.DigestBytes(read(t, classifier)), Images: 10,
		Sites: []sites.Site{{Name: "a", Images: 10}}}
	for class, want := range map[int]string{0: "", -1: "class -1 with", 10: "class 10 with"} {
		r.ByClass = []sites.Class{{Class: class, Sites: 1, Images: 10}}
		must.Do(t, os.WriteFile(pooled, must.Get(json.Marshal(r))(t), 0o600))
		code := exitUsage
		if want == "" {
			code = exitOK
		}
		refused(t, code, want, "evaluate", classifier, "--pooled", pooled)
	}
	for _, flag := range strings.Fields("--level=0.95 --by-client --labels=l.csv --skip=3 --count=3 --max-pixels=99 " +
		"--on-bad=skip --class-numbers") {
		name, _, _ := strings.Cut(flag, "=")
		refused(t, exitUsage, name+" goes with IMAGES", "evaluate", classifier, "--pooled", pooled, flag)
	}
}
