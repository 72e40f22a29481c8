package main

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/models"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
)

func TestDataCommands(t *testing.T) {
	dir := t.TempDir()
	drawn, data, sheet := filepath.Join(dir, "drawn"), filepath.Join(dir, "data"),
		filepath.Join(dir, "sheet.png")
	for _, c := range []struct {
		args []string
		want []string // parts of stdout
	}{
		{[]string{"data", "synth", "--out", drawn, "--train", "120", "--test", "30", "--seed", "4"},
			[]string{"120 training and 30 test images"}},
		{[]string{"data", "show", "--dataset", drawn, "-o", sheet, "--columns", "5"},
			[]string{"120 training", "28x28", "extractor 60, corpus 45, clients 15", sheet}},
		{[]string{"data", "import", drawn, "--name", "mine", "--dataset.dir", data},
			[]string{"--dataset mine"}},
		{[]string{"data", "list", "--dataset.dir", data}, []string{"mine", "fmp data pull mnist"}},
		{[]string{"data", "show", "--dataset", "mine", "--dataset.dir", data, "--json"},
			[]string{`"train": 120`}},
	} {
		stdout, _ := ran(t, c.args...)
		for _, w := range c.want {
			if !strings.Contains(stdout, w) {
				t.Errorf("%v printed %q, which lacks %q", c.args, stdout, w)
			}
		}
	}
	f := must.Get(os.Open(sheet))(t)
	defer f.Close()
	if c, err := png.DecodeConfig(f); err != nil || c.Width != 5*58+2 || c.Height != 10*58+2 {
		t.Errorf("the sheet is %dx%d (%v)", c.Width, c.Height, err)
	}
}

// TestWhereDataSetsAre: a data set that is missing has a remedy that works for it.
func TestWhereDataSetsAre(t *testing.T) {
	for want, s := range map[string]dataset.Status{
		"here":                         {Name: "mnist", Present: true, Where: "here"},
		"missing: fmp data pull mnist": {Name: "mnist", Missing: "not found"},
		"missing: get it from a page":  {Name: "without a download", Missing: "get it from a page"},
	} {
		if got := whereIs(s); got != want {
			t.Errorf("%+v is %q; want %q", s, got, want)
		}
	}
}

func TestDataListJSON(t *testing.T) {
	list := answer[[]dataset.Status](t, "data", "list", "--json", "--dataset.dir", t.TempDir())
	if len(list) != 5 {
		t.Fatalf("listed are %+v", list)
	}
	for _, s := range list {
		if drawn := strings.HasPrefix(s.Name, "digits"); s.Present != drawn ||
			(s.Missing == "") != drawn {
			t.Errorf("%+v in an empty folder", s)
		}
	}
}

// TestBadImagesOfFolders: every command that reads a folder of images names all that it cannot
// read, and can go on without.
func TestBadImagesOfFolders(t *testing.T) {
	if testing.Short() {
		t.Skip("trains")
	}
	orttest.New(t) // skips where there is no ONNX Runtime, which trainings need
	dir := t.TempDir()
	photos := filepath.Join(dir, "photos")
	ran(t, "data", "synth", "--photos", "--out", photos, "--train", "300", "--test", "40")
	bad := []string{filepath.Join(photos, "train", "3", "bad.png"),
		filepath.Join(photos, "test", "4", "worse.jpg")}
	for _, path := range bad {
		must.Do(t, os.WriteFile(path, []byte("no picture"), 0o644))
	}
	out := filepath.Join(dir, "out.onnx")
	for _, args := range [][]string{
		{"data", "show", "--dataset", photos},
		{"data", "import", photos, "--dataset.dir", filepath.Join(dir, "data")},
		{"run", "--dataset", photos},
		{"run", "--dataset", "digits", "--scores.other", photos, "--seeds", "1", "--methods", "LANN",
			"--out", filepath.Join(dir, "run")},
		{"train", "extractor", "--dataset", photos, "-o", out},
		{"train", "patches", "--dataset", photos, "-o", out},
		{"train", "conjugate", "--dataset", photos, "-o", out},
	} {
		code, _, stderr := runFMP(t, args...)
		for _, path := range bad {
			if code != exitUsage || !strings.Contains(stderr, path+": not a readable image") ||
				!strings.Contains(stderr, "--on-bad skip") {
				t.Errorf("fmp %s: exit code %d, want %d and %s named:\n%s",
					strings.Join(args, " "), code, exitUsage, path, stderr)
			}
		}
	}
	for _, args := range [][]string{
		{"data", "show", "--dataset", photos, "--on-bad", "skip"},
		{"train", "patches", "--dataset", photos, "-o", out, "--filters", "12", "--dx", "4",
			"--on-bad", "skip"},
		{"run", "--dataset", photos, "--extractor", out, "--on-bad", "skip", "--seeds",
			"1", "--clients", "2", "--points", "10", "--methods", "LANN", "--out",
			filepath.Join(dir, "skipped")},
	} {
		if stdout, stderr := ran(t, args...); !strings.Contains(stdout+stderr,
			"2 of 342 images under photos cannot be read and were left out: "+
				"train/3/bad.png, test/4/worse.jpg") {
			t.Errorf("fmp %q:\n%s%s", args, stdout, stderr)
		}
	}
	if _, f := must.Get2(models.Load(out))(t); !strings.HasPrefix(f.TrainingData, "photos: training images") ||
		!strings.HasPrefix(f.Command, "fmp train patches --dataset photos --") {
		t.Errorf("the extractor is of %q, by %q", f.TrainingData, f.Command)
	}
	refused(t, exitUsage, "dataset.bad", "run", "--dataset", photos, "--on-bad", "ignore")
}
