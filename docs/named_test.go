package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestNamedTests: each test that a page names, as the one that holds a claim, is there. The log of
// changes and notes name those of their day.
func TestNamedTests(t *testing.T) {
	declared, named := map[string]bool{}, map[string][]string{}
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	name := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	must.Do(t, filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && (e.Name() == ".git" || e.Name() == "bin" || e.Name() == "notes") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".md") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
		if strings.HasSuffix(path, ".md") {
			for _, m := range name.FindAllStringSubmatch(string(text), -1) {
				named[m[1]] = append(named[m[1]], path)
			}
		}
		return nil
	}))
	for n, pages := range named {
		if !declared[n] {
			t.Errorf("%v: %s is no test", pages, n)
		}
	}
	if len(named) < 50 {
		t.Errorf("%d tests are named", len(named))
	}
}
