package experiment

import (
	"bytes"
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
	c := small()
	c.FillDefaults()
	c.Scores.Coverage = false
	p := &Prepared{Config: c, Data: clusters(t, 4, 6, 300, 60), Manifest: Manifest{Identity: "x"}}
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

func TestRowOrder(t *testing.T) {
	rows := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	order := rowOrder(rows, 2)
	var moved []float32 // the rows, last first
	for i := 3; i >= 0; i-- {
		moved = append(moved, rows[2*i:2*i+2]...)
	}
	for i, o := range rowOrder(moved, 2) {
		if 3-o != order[i] {
			t.Errorf("place %d has row %d, of moved rows row %d", i, order[i], 3-o)
		}
	}
}
