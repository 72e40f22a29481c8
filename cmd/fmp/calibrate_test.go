package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/cmd/internal/outputs/outputstest"
	"fmp/featurize/imagefile"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/serde"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
	"fmp/pipeline/evaluate"
	"fmp/pipeline/scaling"
)

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
