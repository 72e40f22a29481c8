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

// pronoun matches a line of comment in which a pronoun stands for a noun of the field.
var pronoun = regexp.MustCompile(`(?i)^\s*//.*[^{]\b(what|whoever|so many|of whose)\b`)

// trees are the folders of the module's sources. Generated messages and tests are left out.
var trees = []string{"assets", "bench", "cmd", "docs", "examples", "featurize", "models",
	"onnx", "pipeline"}

// retired are wordings that docs/terms.md replaces, in comments, help and pages.
var retired = regexp.MustCompile(
	`(?i)seen by nobody before|whoever made them|which is no lie|could be a wall|nobody beside them|` +
		`everything but a coin|of so many single images|for whoever|unsure ones to people`)

// TestRetired: no comment, help text or page has a wording that was retired.
func TestRetired(t *testing.T) {
	must.Do(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == ".git" || name == "bin" || name == "notes" || name == "runs" {
				return filepath.SkipDir
			}
			return nil
		}
		if d.Name() == "comments_test.go" || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if found := retired.FindAllString(string(text), -1); found != nil {
			t.Errorf("%s says %q: docs/terms.md has the words", path, found)
		}
		return nil
	}))
}

// TestComments holds comments to nouns.
func TestComments(t *testing.T) {
	read := 0
	for _, dir := range trees {
		must.Do(t, filepath.WalkDir(filepath.Join("..", dir),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				if d.IsDir() || !strings.HasSuffix(path, ".go") ||
					strings.HasSuffix(path, "_test.go") ||
					strings.HasSuffix(path, ".pb.go") {
					return nil
				}
				source, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				read++
				for i, line := range strings.Split(string(source), "\n") {
					if pronoun.MatchString(line) {
						t.Errorf("%s:%d: a noun for the pronoun: %s", path, i+1,
							strings.TrimSpace(line))
					}
				}
				return nil
			}))
	}
	if read == 0 {
		t.Error("no source was read")
	}
}
