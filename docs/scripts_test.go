package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
)

// TestScriptsMakeTheKeptRuns: the scripts that pages name ask for the methods, repeats and figures of
// the kept runs. A program that writes its arguments stands for fmp.
func TestScriptsMakeTheKeptRuns(t *testing.T) {
	dir := t.TempDir()
	stub, asked := filepath.Join(dir, "fmp"), filepath.Join(dir, "asked")
	must.Do(t, os.WriteFile(stub, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >\""+asked+"\"\n"), 0o700))
	runs := 0
	for _, pattern := range []string{"pretrained/*", "published/*", "families/*/*"} {
		for _, path := range must.Get(filepath.Glob(filepath.Join("results", pattern)))(t) {
			args := []string{"results/pretrained.sh", filepath.Base(path)}
			if split, seed, ok := strings.Cut(filepath.Base(path), "-"); ok && strings.HasPrefix(pattern, "families") {
				args = []string{"results/families.sh", split, seed, filepath.Base(filepath.Dir(path))}
			}
			cmd := exec.Command("sh", args...)
			cmd.Env = append(os.Environ(), "FMP="+stub, "MODELS="+dir, "EXTRACTOR=x.onnx", "METHODS=", "HINDSIGHT=", "OUT=",
				"REPEATS=", "ONCE=")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			given := strings.Split(string(must.Get(os.ReadFile(asked))(t)), "\n")
			c := must.Get(experiment.ReadConfig(path))(t)
			for flag, want := range map[string]string{"--methods": strings.Join(c.Methods, ","),
				"--seeds": strconv.Itoa(c.Seeds), "--out": filepath.Join("docs", path)} {
				if at := slices.Index(given, flag); at >= 0 && given[at+1] != want || at < 0 && flag != "--seeds" {
					t.Errorf("%v: %s is not %s in %q", args, flag, want, given)
				}
			}
			if !slices.Contains(given, "scores.hindsight="+strconv.FormatBool(c.Scores.Hindsight)) {
				t.Errorf("%v: hindsight is not %v in %q", args, c.Scores.Hindsight, given)
			}
			runs++
		}
	}
	if runs < 30 {
		t.Errorf("%d runs", runs)
	}
}
