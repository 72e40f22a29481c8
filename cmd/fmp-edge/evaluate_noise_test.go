package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/must"
	"fmp/onnx/npy"
	"fmp/onnx/serde"
	"fmp/pipeline/federate/identity"
	"fmp/pipeline/tally"
)

// TestNoiseIsSpent: a report with noise is charged to the ledger of private uploads before it is
// written; beyond the owner's limit nothing is written or sent; the same report is given again, and
// nothing is spent.
func TestNoiseIsSpent(t *testing.T) {
	c, dir := classifier(t), t.TempDir()
	photos := photosOf(t, 6)
	path := func(name string) string { return filepath.Join(dir, name) }
	key := must.Get(identity.New("a"))(t)
	must.Do(t, key.Save(path("a.key")))
	var out bytes.Buffer
	want := func(what string, code int, says string, args ...string) {
		t.Helper()
		var log bytes.Buffer
		out.Reset()
		got := execute(context.Background(),
			append([]string{"evaluate", "--model", c, "--key", path("a.key"), "--ledger", path("spent"),
				photos}, args...), &out, &log)
		if code != exitOK && out.Len() > 0 {
			t.Errorf("%s: %q was printed", what, out.String())
		}
		if got != code || !strings.Contains(log.String(), says) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", what, got, log.String(), code, says)
		}
	}
	read := func(name string) *tally.Report {
		t.Helper()
		data := must.Get(os.ReadFile(path(name)))(t)
		r := &tally.Report{}
		must.Do(t, json.Unmarshal(data, r))
		return r
	}
	noisy := []string{"--epsilon", "1", "--output"}
	want("over the limit", exitUsage, "--max-epsilon allows 0.9",
		append(noisy, path("none"), "--max-epsilon", "0.9")...)
	if _, err := os.Stat(path("none")); err == nil {
		t.Error("a report beyond the limit was written")
	}
	want("the first", exitOK, "", append(noisy, path("one"), "--max-epsilon", "1")...)
	want("the same again", exitOK, "nothing is spent",
		append(noisy, path("one"), "--max-epsilon", "1")...)
	want("the same elsewhere", exitOK, "nothing is spent",
		append(noisy, path("copy"), "--max-epsilon", "1")...)
	kept, copied := read("one"), read("copy")
	if !bytes.Equal(kept.Signature, copied.Signature) {
		t.Error("the noise was drawn again")
	}
	want("another round", exitOK, "with 1 earlier releases epsilon 1.4",
		append(noisy, path("two"), "--round", "2", "--max-epsilon", "1.5")...)
	want("another round in the same file", exitUsage, "is a report with noise already",
		append(noisy, path("one"), "--round", "3")...)
	want("drawn again, over the limit", exitUsage, "over 2 earlier releases",
		append(noisy, path("three"), "--redraw", "--max-epsilon", "1.5")...)
	want("signed and printed, over the limit", exitUsage, "--max-epsilon allows 0.9",
		append(noisy, path("none"), "--round", "4", "--json", "--max-epsilon", "0.9")...)
	want("signed and printed", exitOK, "nothing is spent", append(noisy, path("one"), "--json")...)
	if kept := must.Get(os.ReadFile(path("one")))(t); !bytes.Equal(out.Bytes(), kept) {
		t.Errorf("printed %s; kept is %s", out.Bytes(), kept)
	}
	write(t, filepath.Join(photos, "0", "bad.png"), []byte("no image"))
	want("an image that cannot be read", exitOK, "bad.png", append(noisy, path("bad"), "--round", "9")...)
	must.Do(t, os.Remove(filepath.Join(photos, "0", "bad.png")))
	one := must.Get(filepath.Glob(filepath.Join(photos, "0", "*")))(t)[0]
	for _, class := range []string{"0", "1"} { // its own, and another
		copied := filepath.Join(photos, class, "copy.png")
		write(t, copied, must.Get(os.ReadFile(one))(t))
		want("a copy in "+class, exitOK, "nothing is spent", append(noisy, path("one"), "--max-epsilon", "1")...)
		must.Do(t, os.Remove(copied))
	}
	must.Do(t, os.Remove(path("one")))
	want("a report that is gone", exitUsage, "--redraw", append(noisy, path("one"))...)
	if info, err := os.Stat(path("spent")); err != nil || info.Size() == 0 {
		t.Error(err)
	}
	// An upload of the same images, of another program's ledger of both.
	refuses(t, exitUsage, "over 3 earlier releases", "compress", "--model", privateGraph(t),
		"--client", "a", "-o", path("upload"), "--ledger", path("spent"), "--epsilon", "1",
		"--max-epsilon", "1.5", photos)
}

// TestNoiseOfRows: no feature row keeps a report with noise from being made, and a copy of one costs
// nothing; without noise a row that is not finite is an error.
func TestNoiseOfRows(t *testing.T) {
	path := newFolder(t)
	heads := onnx.NewTensor([]float64{10, -10, 0, 0}, 1, 2, 2)
	must.Do(t, serde.Save(path("c.onnx"), must.Get(models.NewClassifier(models.ClassifierParts{Heads: heads},
		models.Manifest{Dx: 1, C: 2}))(t)))
	must.Do(t, must.Get(identity.New("a"))(t).Save(path("a.key")))
	for name, last := range map[string]float64{"finite": 3, "a copy": 2, "NaN": math.NaN(), "wide": 1e300} {
		must.Do(t, npy.Save(path("x.npy"), onnx.NewTensor([]float64{1, 2, -2, last}, 4, 1)))
		must.Do(t, npy.Save(path("y.npy"), onnx.NewTensor([]int64{0, 0, 1, 0}, 4)))
		args := []string{"evaluate", "--model", path("c.onnx"), "--key", path("a.key"), "--labels", path("y.npy"),
			path("x.npy")}
		if name == "NaN" || name == "wide" {
			refuses(t, exitUsage, "row 3 has a number that is not finite", args...)
		}
		run(t, append(args, "--epsilon", "1", "--max-epsilon", "1", "--output", path(name), "--ledger",
			path(name+".ledger"))...)
	}
}
