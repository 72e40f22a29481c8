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
		ran(t, "man", dir, "--format", format)
		b, err := os.ReadFile(filepath.Join(dir, want))
		if err != nil || !strings.Contains(string(b), "batch.npy") {
			t.Errorf("%s: %v; want the page with its example", want, err)
		}
	}
	refused(t, exitFailed, "writing manual pages", "man", filepath.Join(writeFile(t, "file", ""),
		"d"))
}
