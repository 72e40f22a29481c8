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
