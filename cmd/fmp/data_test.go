package main

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/featurize/dataset"
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

func TestDataErrors(t *testing.T) {
	dir := t.TempDir()
	truncated := filepath.Join(dir, "truncated")
	ran(t, "data", "synth", "-o", truncated, "--train", "20", "--test", "20")
	images := filepath.Join(truncated, "train-images-idx3-ubyte")
	must.Do(t, os.Truncate(images, 5000))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"data", "show", "--dataset", truncated}, exitUsage, "truncated"},
		{[]string{"data", "show", "--dataset", "mnist", "--dataset.dir", dir}, exitMissing,
			"fmp data pull mnist"},
		{[]string{"data", "show", "--part", "both"}, exitUsage, "train and test"},
		{[]string{"data", "show", "--dataset", truncated, "--seed", "3"}, exitUsage, "--seed is for drawn data sets"},
		{[]string{"data", "show", "--dataset", "digits", "-o", "sheet.jpg"}, exitUsage, "a contact sheet is a PNG"},
		{[]string{"data", "pull", "imagenet"}, exitUsage, "mnist, cifar10 or cifar100"},
		{[]string{"data", "pull", "minst"}, exitUsage, "did you mean mnist?"},
		{[]string{"data", "show", "--dataset", "cifar-10", "--dataset.dir", dir}, exitMissing,
			"did you mean cifar10?"},
		{[]string{"data", "pull", "mnist", "--data-dir", dir}, exitUsage,
			"did you mean --dataset.dir?"},
		{[]string{"data", "pull"}, exitUsage, "name of a data set"},
		{[]string{"extractors", "pull", "resnet"}, exitUsage, "none that can be fetched"},
		{[]string{"data", "import", truncated, "--dataset.dir", filepath.Join(dir, "data")},
			exitUsage, "truncated"},
		{[]string{"data", "import", filepath.Join(dir, "nothing"), "--dataset.dir", dir},
			exitMissing, "nothing"},
		{[]string{"data", "synth"}, exitUsage, "--out"},
		{[]string{"data", "synth", "-o", images}, exitUsage, "is a file"},
		{[]string{"data", "synth", "-o", truncated, "--photos"}, exitUsage, "holds files"},
		{[]string{"data", "synth", "-o", dir, "--variant", "letters"}, exitUsage, "digits-color"},
		{[]string{"data", "synth", "-o", dir, "--train", "-3"}, exitUsage, "-3"},
		{[]string{"data", "synth", "-o", dir, "--train", "0"}, exitUsage, "--train 0"},
		{[]string{"data", "synth", "-o", dir, "--test", "0"}, exitUsage, "--test 0"},
		{[]string{"data", "import", truncated, "--name", "CIFAR10", "--dataset.dir", dir}, exitUsage, "of the kind cifar10"},
		{[]string{"data", "lst"}, exitUsage, "list"},
		{[]string{"train", "patches"}, exitUsage, "--out"},
	} {
		refused(t, c.code, c.want, c.args...)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "data")); err == nil && len(entries) > 0 {
		t.Errorf("a failed import left %v", entries)
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
	refused(t, exitUsage, "dataset.bad", "run", "--dataset", photos, "--on-bad", "ignore")
}
