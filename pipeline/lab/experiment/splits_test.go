package experiment

import (
	"bytes"
	"fmt"
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

// exported writes the splits of a small run on some data, in the run directory dir, to the folder path.
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
		dir, path, data := t.TempDir(), filepath.Join(t.TempDir(), "splits"), clusters(t, 4, 6, 300, 60)
		must.Do(t, exported(t, data, dir, path))
		was := map[string][]byte{}
		for _, f := range []string{testSplit, corpusSplit, SplitsFile} {
			was[f] = read(t, path, f)
		}
		must.Do(t, x.change(dir, path))
		if err := exported(t, data, dir, path); (err == nil) != (x.want == "") ||
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

// TestRowOrder: equal runs in two directories have the same splits, so that predictions from either are
// scored in both. Features with other bits, as another processor has, are in the same order, and a
// folder keeps the test rows that its run directory holds.
func TestRowOrder(t *testing.T) {
	at, data := t.TempDir(), clusters(t, 4, 6, 300, 60)
	export := func(run, splits string) {
		t.Helper()
		must.Do(t, exported(t, data, filepath.Join(at, run), filepath.Join(at, splits)))
	}
	export("r1", "s1")
	export("r3", "s4")
	export("r3", "s1")
	for _, name := range []string{testSplit, SplitsFile} {
		if !bytes.Equal(read(t, at, "s1", name), read(t, at, "s4", name)) {
			t.Errorf("%s differs", name)
		}
	}
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
	if !bytes.Equal(read(t, at, "s1", testSplit), read(t, at, "s3", testSplit)) {
		t.Error("splits of a run directory have other test rows than it holds")
	}
}

// TestModelsOfAKeptRun: a run that cannot be gone on with by other models says whose models it needs, by
// other settings which these are; files that are no run's are left alone.
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
	l2, kept := c.ERM.L2, read(t, dir, ConfigFile)
	c.ERM.L2++
	must.Fail(Open(dir, c, is))(t, fmt.Sprintf("erm.l2 is %g there and %g here", l2, c.ERM.L2), "other settings")
	if !bytes.Equal(kept, read(t, dir, ConfigFile)) {
		t.Error("the refused run changed the settings")
	}
	must.Fail(readHeld(dir))(t, "the program and the models that made the run", "without splits")
	foreign := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(foreign, "thesis.tex"), nil, 0o644))
	must.Fail(Open(foreign, c, is))(t, "holds files and no run", "a folder with other files")
}
