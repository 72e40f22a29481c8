package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/assets/assetstest"
	"fmp/models"
	"fmp/onnx/must"
)

// TestPageRefuses: nothing is written for a private round, into a mistyped folder, or without the
// program.
func TestPageRefuses(t *testing.T) {
	dir := t.TempDir()
	private := filepath.Join(dir, "private.onnx")
	write(t, private, assetstest.PrivateClient(t))
	for want, c := range map[string]struct {
		code int
		args []string
	}{
		"states no budget": {exitUsage, []string{"--model", private, "-o", "site"}},
		"the folder": {exitMissing,
			[]string{"--model", model(t, models.KindClient), "-o", "none/site"}},
		"make page writes": {exitMissing,
			[]string{"--model", model(t, models.KindClient), "--program", dir, "-o", "site"}},
		"want --model client.onnx": {exitUsage, []string{"-o", "site"}},
		`is of kind "extractor"`: {exitUsage,
			[]string{"--model", model(t, models.KindExtractor), "-o", "site"}},
		"no such file or directory":  {exitMissing, []string{"--model", "none.onnx", "-o", "site"}},
		"nothing else; see fmp-edge": {exitUsage, []string{"--model", private, "-o", "site", "photos"}},
	} {
		out := filepath.Join(t.TempDir(), "of")
		must.Do(t, os.Mkdir(out, 0o755))
		for i, a := range c.args {
			if strings.HasSuffix(a, "site") {
				c.args[i] = filepath.Join(out, a)
			}
		}
		refuses(t, c.code, want, append([]string{"page"}, c.args...)...)
		if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
			t.Errorf("%v: left %v, %v", c.args, left, err)
		}
	}
}
