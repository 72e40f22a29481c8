package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestFeatures: shards of the command merge to the file that the command makes without them, byte
// for byte, and a run reads it.
func TestFeatures(t *testing.T) {
	if testing.Short() {
		t.Skip("draws photographs and runs on them")
	}
	emptyCache(t)
	photos := filepath.Join(t.TempDir(), "photos")
	ran(t, "data", "synth", "--photos", "--out", photos, "--train", "600", "--test", "100")
	of := []string{"--dataset", photos, "--extractor", randomExtractor(t), "--extractor.mean", "0",
		"--extractor.std", "1", "--extractor.batch", "16"}
	store := func() (name string, data []byte) {
		t.Helper()
		files, _ := filepath.Glob(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "fmp", "features", "*"))
		if len(files) != 2 {
			t.Fatalf("stored are %v; want features and their digest", files)
		}
		return filepath.Base(files[0]), read(t, files[0])
	}
	must.Do(t, os.WriteFile(filepath.Join(photos, "train", "0", "bad.png"), []byte("no image"), 0o600))
	of = append(of, "--on-bad", "skip")
	if _, errs := ran(t, append([]string{"features"}, of...)...); !strings.Contains(errs, "0/bad.png") {
		t.Errorf("an image that is left out is not named: %s", errs)
	}
	name, want := store()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for i := range 3 {
		ran(t, append([]string{"features", "--shard", fmt.Sprintf("%d/3", i)}, of...)...)
	}
	out, _ := ran(t, "features", "merge")
	if got, data := store(); got != name || !bytes.Equal(data, want) ||
		!strings.Contains(out, "700 images, of 3 shards") {
		t.Errorf("merged %s, equal %v: %s", got, bytes.Equal(data, want), out)
	}
	_, errs := ran(t, append([]string{"run", "--seeds", "1", "--clients", "3", "--points", "20",
		"--methods", "LANN,FedCGS", "--out", filepath.Join(t.TempDir(), "run")}, of...)...)
	if !strings.Contains(errs, "data: ") || strings.Contains(errs, "features: ") {
		t.Errorf("the run computes features: %s", errs)
	}
}

func TestFeaturesUsage(t *testing.T) {
	for _, shard := range []string{"", "3", "a/3", "3/3", "-1/3", "0/0", "1/100001", "1/2/3"} {
		if code, _, errs := runFMP(t, "features", "--shard", shard); code != exitUsage ||
			!strings.Contains(errs, "i/N") && !strings.Contains(errs, "--shard is empty") {
			t.Errorf("--shard %q: exit code %d: %s", shard, code, errs)
		}
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	refused(t, exitMissing, "", "features", "merge")
}
