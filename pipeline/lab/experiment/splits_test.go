package experiment

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
)

// exportedTo writes the splits of a small run in the run directory dir to the folder path.
func exportedTo(t *testing.T, dir, path string) error {
	t.Helper()
	return exported(t, clusters(t, 4, 6, 300, 60), dir, path)
}

// exported writes the splits of a small run on some data.
func exported(t *testing.T, of *Data, dir, path string) error {
	t.Helper()
	c := small()
	c.FillDefaults()
	c.Scores.Coverage = false
	p := &Prepared{Config: c, Data: of, Manifest: Manifest{Identity: "x"}}
	d := must.Get(Open(dir, c, p.Manifest))(t)
	defer d.Close()
	return ExportSplits(t.Context(), p, d, path)
}

// TestSplitsOfEqualRuns: equal runs in two directories have the same splits, so that predictions
// from either are scored in both.
func TestSplitsOfEqualRuns(t *testing.T) {
	at := t.TempDir()
	in := func(name string) string { return filepath.Join(at, name) }
	must.Do(t, exportedTo(t, in("r1"), in("s1")))
	must.Do(t, exportedTo(t, in("r2"), in("s2")))
	must.Do(t, exportedTo(t, in("r2"), in("s1")))
	for _, name := range []string{testSplit, SplitsFile} {
		if !bytes.Equal(read(t, in("s1"), name), read(t, in("s2"), name)) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestSplitsAgain: of splits that are there, files that are gone or changed are made again, and
// those of another order of test rows are refused.
func TestSplitsAgain(t *testing.T) {
	for name, x := range map[string]struct {
		change func(dir, path string) error
		want   string // of the error; empty: whole
	}{
		"as it was": {func(_, _ string) error { return nil }, ""},
		"gone":      {func(_, path string) error { return os.Remove(filepath.Join(path, testSplit)) }, ""},
		"changed": {func(_, path string) error {
			return os.WriteFile(filepath.Join(path, corpusSplit), []byte("x"), 0o600)
		}, ""},
		"another order": {func(dir, _ string) error {
			file := filepath.Join(dir, HeldFile)
			arrays, err := npy.LoadArchive(file)
			if err != nil {
				return err
			}
			order := slices.Clone(arrays["order"].I64())
			slices.Reverse(order)
			arrays["order"] = onnx.Vector(order...)
			return npy.SaveArchive(file, arrays)
		}, "another run directory"},
	} {
		dir, path := t.TempDir(), filepath.Join(t.TempDir(), "splits")
		must.Do(t, exportedTo(t, dir, path))
		was := map[string][]byte{}
		for _, f := range []string{testSplit, corpusSplit, SplitsFile} {
			was[f] = read(t, path, f)
		}
		must.Do(t, x.change(dir, path))
		if err := exportedTo(t, dir, path); (err == nil) != (x.want == "") ||
			err != nil && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v; want %q", name, err, x.want)
		}
		for f, data := range was {
			if !bytes.Equal(read(t, path, f), data) {
				t.Errorf("%s: %s differs", name, f)
			}
		}
	}
}

// TestRowOrder: features with other bits, as another processor has, are in the same order, and a folder
// keeps the test rows that its run directory holds.
func TestRowOrder(t *testing.T) {
	at, data := t.TempDir(), clusters(t, 4, 6, 300, 60)
	export := func(run, splits string) {
		t.Helper()
		must.Do(t, exported(t, data, filepath.Join(at, run), filepath.Join(at, splits)))
	}
	export("r1", "s1")
	for i, v := range data.Test {
		data.Test[i] = math.Nextafter32(v, 1000)
	}
	export("r2", "s2")
	export("r1", "s1")
	export("r1", "s3")
	one, two := must.Get(readHeld(filepath.Join(at, "r1")))(t), must.Get(readHeld(filepath.Join(at, "r2")))(t)
	if !slices.Equal(one.order, two.order) || slices.IsSorted(one.order) || slices.Equal(one.Features, two.Features) {
		t.Errorf("orders %v and %v", one.order, two.order)
	}
	if !bytes.Equal(read(t, filepath.Join(at, "s1"), testSplit), read(t, filepath.Join(at, "s3"), testSplit)) {
		t.Error("splits of a run directory have other test rows than it holds")
	}
}

// TestModelsOfAKeptRun: a run that cannot be gone on with by other models says whose models it needs.
func TestModelsOfAKeptRun(t *testing.T) {
	dir, c := t.TempDir(), small()
	c.FillDefaults()
	was := Manifest{Identity: "x", Versions: map[string]string{"fmp": "0.1.0", "engine": "ort"},
		Models: map[string]string{"conjugate": "aa"}}
	must.Do(t, must.Get(Open(dir, c, was))(t).Close())
	is := was
	is.Identity, is.Models = "y", map[string]string{"conjugate": "bb"}
	must.Fail(Open(dir, c, is))(t, "its own models: those of fmp 0.1.0", "other models")
	for want, versions := range map[string]map[string]string{
		"another run (conjugate is aa there and none here; open is none there and cc here)": was.Versions,
		"another run (engine is ort there and pure here; conjugate":                         {"engine": "pure"},
	} {
		is.Models, is.Versions = map[string]string{"open": "cc"}, versions
		must.Fail(Open(dir, c, is))(t, want, "a model left out")
	}
	is.Models, is.Versions = was.Models, was.Versions
	if _, err := Open(dir, c, is); err == nil || strings.Contains(err.Error(), "models") {
		t.Errorf("equal models: %v", err)
	}
	must.Fail(readHeld(dir))(t, "the program and the models that made the run", "without splits")
}
