package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/federate/wire"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/scaling"
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

// TestClientFolderThatCannotBeLookedAt: the system's reason is told, and none of links.
func TestClientFolderThatCannotBeLookedAt(t *testing.T) {
	const longest = 4095 // bytes of a path
	if runtime.GOOS != "linux" {
		t.Skip("paths that are too long are made as Linux bounds them")
	}
	dir := t.TempDir()
	for len(dir)+251 <= longest {
		dir = filepath.Join(dir, strings.Repeat("d", 250))
	}
	must.Do(t, os.MkdirAll(dir, 0o700))
	t.Chdir(dir)
	must.Do(t, os.Mkdir(strings.Repeat("c", 255), 0o700))
	must.Fail(clientFolders(dir))(t, "file name too long")
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

// TestCalibrate: from drawn photographs to a calibrated classifier, whose sets predict prints and
// evaluate counts, and whose calibration images bound the share of wrong answers.
func TestCalibrate(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a run, and evaluates and calibrates its classifiers many times")
	}
	emptyCache(t)
	at := newFolder(t)
	ran(t, "data", "synth", "-o", at("data"), "--train", "100", "--test", "240", "--seed", "3")
	ran(t, "run", "--dataset", "digits", "--seeds", "1", "--clients", "3", "--points", "20", "--methods",
		"FMP", "--dataset.test", "50", "--keep-models", "--out", at("run"))
	kept, err := filepath.Glob(at("run/models/*.onnx"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v, %v; want one classifier", kept, err)
	}
	images, labels := at("data/t10k-images-idx3-ubyte"), at("data/t10k-labels-idx1-ubyte")
	half := []string{"--labels", labels, "--count", "120"}
	for _, score := range []string{"probability", "adaptive"} {
		r := answer[calibration](t, append([]string{"calibrate", kept[0], images, "--score", score, "-o",
			at("sets.onnx"), "--json"}, half...)...)
		chosen := slices.IndexFunc(r.Trials, func(t scaling.Trial) bool { return t.Chosen })
		if len(r.Trials) != 4 || chosen < 0 || (r.Scaling == nil) != (chosen == 0) || chosen == 1 &&
			r.Scaling.Kind != models.Temperature {
			t.Errorf("scalings: %+v, written %+v", r.Trials, r.Scaling)
		}
		if len(r.Missing) != 0 || r.Images != 120 || r.Level != 0.9 || len(r.Thresholds) != 1 ||
			!(r.Thresholds[0] > 0 && r.Thresholds[0] < 1) ||
			!(r.MeanSize[r.Score] >= 1) {
			t.Errorf("%+v", r)
		}
		e := answer[evaluate.Result](t, "evaluate", at("sets.onnx"), images, "--labels", labels, "--skip",
			"120", "--json", "--card", at("card.md"))
		if e.Sets == nil || e.Sets.High < 0.9 || !(e.Sets.Low < e.Sets.High) || e.Sets.MeanSize < 1 {
			t.Fatalf("coverage of sets is %+v", e.Sets)
		}
		held := 0
		for _, c := range e.ByClass {
			if held += c.Held; c.HeldLow == nil || c.HeldHigh == nil ||
				*c.HeldLow*float64(c.Images) > float64(c.Held) ||
				*c.HeldHigh*float64(c.Images) < float64(c.Held) || *c.HeldLow == *c.HeldHigh {
				t.Errorf("class %s: %d of %d images are held, interval %v to %v", c.Name,
					c.Held, c.Images, c.HeldLow, c.HeldHigh)
			}
		}
		if held != e.Sets.Held {
			t.Errorf("%d images are held by class, %d in all", held, e.Sets.Held)
		}
		if card, err := os.ReadFile(at("card.md")); err != nil || !strings.Contains(string(card),
			"a probability of at least 0.9, over the draw") {
			t.Errorf("the card does not state the guarantee (%v)", err)
		}
		out, _ := ran(t, "predict", at("sets.onnx"), images, "--skip", "120", "--csv")
		rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		if err != nil || rows[0][len(rows[0])-1] != "set" {
			t.Fatalf("%v: %v", err, rows[0])
		}
		total := 0
		for _, row := range rows[1:] {
			set := strings.Split(row[len(row)-1], "|")
			if total += len(set); !slices.Contains(set, row[1]) {
				t.Errorf("the set of %s, %v, lacks its most probable class %s", row[0], set, row[1])
			}
		}
		if got := float64(total) / float64(len(rows)-1); math.Abs(got-e.Sets.MeanSize) > 1e-9 {
			t.Errorf("predict prints sets of mean size %v, evaluate says %v", got, e.Sets.MeanSize)
		}
	}
	// Calibrated again: the file says what it comes of.
	if r := answer[calibration](t, append([]string{"calibrate", at("sets.onnx"), images, "--scaling",
		"temperature", "-o", at("again.onnx"), "--json"}, half...)...); len(r.Trials) != 2 ||
		r.Trials[0].Scores.NLL <= 0 {
		t.Errorf("%+v", r)
	}
	_, f := must.Get2(models.Load(at("again.onnx")))(t)
	if o, err := models.ReadOrigin(f); err != nil || len(o.Of) != 2 {
		t.Errorf("the classifier comes of %v, %v; want two", o.Of, err)
	}
	// Another level, sets by class and for named shares, coverage by client.
	ran(t, "data", "synth", "-o", at("photos"), "--photos", "--train", "20", "--test",
		"60", "--seed", "4")
	for _, c := range []struct{ flag, card string }{
		{"--by-class", "a new image of any class holds"},
		{"--proportions=0=3,7=1", "has the shares 0 0.75, 7 0.25 holds"},
	} {
		if r := answer[calibration](t, append([]string{"calibrate", kept[0], images, c.flag, "--level", "0.6",
			"-o", at("other.onnx"), "--json"}, half...)...); r.ByClass != (len(r.Thresholds) == 10) ||
			r.ByClass == (r.Proportions != nil) {
			t.Errorf("%s: %+v", c.flag, r)
		}
		var size []float64
		for _, level := range []string{"0.5", "0.6", "0.8"} {
			e := answer[evaluate.Result](t, "evaluate", at("other.onnx"), at("photos"), "--by-client", "--level",
				level, "--json", "--card", at("card.md"))
			if s := e.Sets; fmt.Sprint(s.Level) != level || len(s.ByClient) != 2 ||
				s.ByClient[0].Client != "test" ||
				s.ByClient[0].Images+s.ByClient[1].Images != e.Images ||
				s.ByClient[0].Held+s.ByClient[1].Held != s.Held ||
				!(s.ByClient[0].Low < s.ByClient[0].High) ||
				math.Abs(s.MeanSizes["probability"]-s.MeanSize) > 1e-9 || s.MeanSizes["adaptive"] < 1 {
				t.Errorf("%s, level %s: %+v", c.flag, level, s)
			}
			size = append(size, e.Sets.MeanSize)
		}
		if !slices.IsSorted(size) || c.flag == "--by-class" && size[0] == size[2] {
			t.Errorf("%s: sets of higher levels have the sizes %v", c.flag, size)
		}
		if card, err := os.ReadFile(at("card.md")); err != nil ||
			!strings.Contains(string(card), c.card) || !strings.Contains(string(card),
			"**Voids it**") {
			t.Errorf("%s: the card does not say %q (%v)", c.flag, c.card, err)
		}
	}
	if _, errs := ran(t, "predict", at("sets.onnx"), images, "--error", "0.3"); !strings.Contains(errs,
		"of 120 calibration images are answered") {
		t.Errorf("predict --error says %q", errs)
	}
	calibrateCopies(t, kept[0], at("photos/test"))
	t.Chdir(at(""))
	of, plain := "predict sets.onnx "+images+" ", "predict "+kept[0]+" "+images+" "
	outputstest.CheckWrong(t, []outputstest.Wrong{{of + "--error 0.1 --reject 0.5", "give one"},
		{of + "--count -1", "numbers of at least 0"},
		{of + "--error 0.3 --adapt " + images, "--adapt is for another"}, {of + "--max-pixels=-1", "--max-pixels is -1"},
		{"evaluate sets.onnx " + images + " --labels " + labels + " --skip=-1", "numbers of at least 0"},
		{of + "--level 0.4", "allowed are 0.5 to 0.999"}, {plain + "--error 0.1", "no calibration images"},
		{plain + "--level 0.9", "no prediction sets whose level"},
		{"evaluate " + kept[0] + " photos --by-client", "the classifier has none"},
		{"evaluate sets.onnx photos/test/3 --by-client", "has no folders"}}, everything(t))
	refused(t, exitUsage, "prove no such share", "predict", "sets.onnx", images, "--error", "0.001")
	refused(t, exitUsage, "at least 199 calibration points, and there are 120",
		append([]string{"calibrate", kept[0], images, "--level", "0.995", "-o", "no.onnx"}, half...)...)
	absent(t, "no.onnx")
}

// calibrateCopies calibrates and evaluates on a folder of classes, and on one that has every image
// twice: both say the same, and the copies are told.
func calibrateCopies(t *testing.T, classifier, folder string) {
	t.Helper()
	twice := filepath.Join(t.TempDir(), "test")
	must.Do(t, os.CopyFS(twice, os.DirFS(folder)))
	images := must.Get(filepath.Glob(filepath.Join(twice, "*", "*")))(t)
	for _, image := range images {
		must.Do(t, os.WriteFile(image+".again"+filepath.Ext(image), read(t, image), 0o600))
	}
	said := fmt.Sprintf("left out: %d copies", len(images))
	out := filepath.Join(t.TempDir(), "out.onnx")
	for _, args := range [][]string{{"calibrate", "--level", "0.6", "-o", out}, {"evaluate"}} {
		var shown []string
		for _, of := range []string{folder, twice} {
			text, log := ran(t, append(args, classifier, of, "--engine", "pure", "--json")...)
			if strings.Contains(log, said) != (of == twice) {
				t.Errorf("%s of %s says %q", args[0], of, log)
			}
			shown = append(shown, text)
		}
		once, again := strings.Split(shown[0], "\n"), strings.Split(shown[1], "\n")
		for i, line := range once {
			if i < len(again) && line != again[i] && !strings.Contains(line, `"file"`) {
				t.Errorf("%s: of copies %s, without %s", args[0], again[i], line)
			}
		}
	}
}

// TestCalibrateShowsProgress: how far the fits are is said where they take their time.
func TestCalibrateShowsProgress(t *testing.T) {
	wasQuiet := quietInLog
	t.Cleanup(func() { quietInLog = wasQuiet })
	for _, quietInLog = range []time.Duration{time.Hour, 0} {
		var log strings.Builder
		r := calibration{Level: 0.5, Score: conformal.Probability, scale: scaleAuto, log: &log}
		must.Get(r.calibrate(t.Context(), models.Manifest{C: 2}, "", func(do func([]classify.Prediction) error) error {
			p := []float32{0.6, 0.4}
			for y := range 40 {
				must.Do(t, do([]classify.Prediction{{Scored: p, Probabilities: p, Samples: p,
					Item: imagefile.Item{Label: y % 2}}}))
			}
			return nil
		}))(t)
		for _, kind := range scaling.Kinds {
			if want := "fits of a " + kind + ": 5 of 5 (100%)"; strings.Contains(log.String(), want) != (quietInLog == 0) {
				t.Errorf("quiet for %v, it says %q; want %q where it takes longer", quietInLog, log.String(), want)
			}
		}
	}
}

// TestCalibrateMissing: classes that no image is of are named.
func TestCalibrateMissing(t *testing.T) {
	r := calibration{Level: 0.5, Score: conformal.Probability, scale: scaleNone}
	f := models.Manifest{C: 3, Classes: []string{"cat", "dog", "owl"}}
	_, err := r.calibrate(t.Context(), f, "", func(do func([]classify.Prediction) error) error {
		p := []float32{0.6, 0.3, 0.1}
		for y := range 20 {
			if err := do([]classify.Prediction{{Scored: p, Probabilities: p,
				Item: imagefile.Item{Label: y % 2 * 2}}}); err != nil {
				return err
			}
		}
		return nil
	})
	var b strings.Builder
	if r.print(&b); err != nil || !slices.Equal(r.Missing, []string{"dog"}) ||
		!strings.Contains(b.String(), "No image is of dog:") {
		t.Errorf("%v, %v:\n%s", r.Missing, err, &b)
	}
}

// TestErrorOfCalibrated: a row of predict --error is of one classifier, that of the proof. Beside
// the probabilities before a calibration stands no interval and no entropy of those after it.
func TestErrorOfCalibrated(t *testing.T) {
	from := filepath.Join("testdata", "releases", "0.1.0")
	plain := must.Get(serde.Load(filepath.Join(from, "classifier.onnx")))(t)
	scaled := must.Get(models.WithScaling(plain, models.OriginScaling{Images: 200,
		Scaling: models.Scaling{Kind: models.Temperature, Factor: []float32{0.25}}}))(t)
	sets := models.OriginSets{Level: 0.9, Images: 200, Thresholds: []float32{0.3},
		Table: &models.SetTable{Columns: 1, Levels: []float32{0.92}, Thresholds: []float32{0.3}}}
	for i := range sets.Images {
		sets.Top, sets.Right = append(sets.Top, float32(i)/200), append(sets.Right, true)
	}
	for _, c := range []struct {
		name   string
		m      *onnx.Model
		fields bool
	}{{"calibrated", scaled, false}, {"as pooled", plain, true}} {
		t.Run(c.name, func(t *testing.T) {
			path := saved(t)(models.WithSets(c.m, sets, false))
			row := func(args ...string) (fields map[string]any, probabilities []float64) {
				all := answer[struct{ Predictions []map[string]any }](t, append(append([]string{"predict"}, args...),
					filepath.Join(from, "image.jpg"), "--json", "--engine", "pure")...)
				for _, v := range all.Predictions[0]["probabilities"].([]any) {
					probabilities = append(probabilities, v.(float64))
				}
				return all.Predictions[0], probabilities
			}
			_, with := must.Get2(models.Load(path))(t)
			if !hasSets(with) || hasSets(must.Get(models.ReadManifest(c.m))(t)) {
				t.Error("--adapt does not tell the sets of a classifier from none")
			}
			got, p := row(path, "--error", "0.3")
			was, want := row(filepath.Join(from, "classifier.onnx"))
			for class, v := range want {
				if math.Abs(p[class]-v) > 1e-6 {
					t.Errorf("class %d has %v, and %v before the calibration", class, p[class], v)
				}
			}
			for _, name := range []string{"low", "high", "entropy", "mutual_information"} {
				if _, ok := was[name]; !ok {
					t.Fatalf("the classifier has no %s", name)
				}
				if _, ok := got[name]; ok != c.fields {
					t.Errorf("%s beside the probabilities: %v", name, ok)
				}
			}
			if got["class"] != was["class"] || len(got["set"].([]any)) == 0 {
				t.Errorf("class %v and set %v; class %v before", got["class"], got["set"], was["class"])
			}
			out, _ := ran(t, "predict", path, filepath.Join(from, "image.jpg"), "--csv", "--error", "0.3")
			rows := must.Get(csv.NewReader(strings.NewReader(out)).ReadAll())(t)
			if (rows[1][slices.Index(rows[0], "entropy")] != "") != c.fields ||
				slices.Contains(rows[0], "low") != c.fields {
				t.Errorf("CSV is %q", rows)
			}
		})
	}
}
