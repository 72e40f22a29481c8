package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManualPages(t *testing.T) {
	for format, want := range map[string]string{"man": "fmp-onnx-run.1", "markdown": "fmp_onnx_run.md"} {
		dir := filepath.Join(t.TempDir(), "pages")
		if code, _, errs := runFMP(t, "man", dir, "--format", format); code != exitOK {
			t.Fatal(errs)
		}
		b, err := os.ReadFile(filepath.Join(dir, want))
		if err != nil || !strings.Contains(string(b), "batch.npy") {
			t.Errorf("%s: %v; want the page with its example", want, err)
		}
	}
	for _, args := range [][]string{{"man"}, {"man", "x", "--format", "html"}} {
		if code, _, errs := runFMP(t, args...); code != exitUsage {
			t.Errorf("%v: exit code %d, said %q", args, code, errs)
		}
	}
	if code, _, errs := runFMP(t, "man", filepath.Join(writeFile(t, "file", ""), "d")); code != exitFailed ||
		!strings.Contains(errs, "writing manual pages") {
		t.Errorf("exit code %d, said %q", code, errs)
	}
}
