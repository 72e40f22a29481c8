package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"fmp/onnx/must"
)

// touched are the files of a diff.
var touched = regexp.MustCompile(`(?m)^diff --git a/(\S+) `)

// TestWalks: the walks of CONTRIBUTING.md apply to the sources as they are, touch few files, and
// what they add passes the tests of its packages.
func TestWalks(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git to apply a diff with")
	}
	for walk, w := range map[string]struct {
		most     int // files
		packages []string
	}{
		"method":   {5, []string{"fmp/pipeline/lab/rival"}},
		"operator": {5, []string{"fmp/onnx/internal/kernel", "fmp/onnx/coverage"}},
		"dataset":  {5, []string{"fmp/featurize/dataset"}},
		"option":   {3, []string{"fmp/pipeline/federate/round"}},
		"upload":   {6, []string{"fmp/pipeline/federate"}},
	} {
		t.Run(walk, func(t *testing.T) {
			root := must.Get(filepath.Abs(".."))(t)
			diff := filepath.Join(root, "docs", "contributing", walk+".diff")
			text := must.Get(os.ReadFile(diff))(t)
			files := touched.FindAllStringSubmatch(string(text), -1)
			if len(files) == 0 || len(files) > w.most {
				t.Errorf("%d files; 1 to %d are wanted", len(files), w.most)
			}
			// The files alone are copied; the go tool lays them over the sources.
			dir := t.TempDir()
			overlay := map[string]map[string]string{"Replace": {}}
			for _, f := range files {
				from, to := filepath.Join(root, f[1]), filepath.Join(dir, f[1])
				overlay["Replace"][from] = to
				must.Do(t, os.MkdirAll(filepath.Dir(to), 0o755))
				if old, err := os.ReadFile(from); err == nil { // else it is new
					must.Do(t, os.WriteFile(to, old, 0o644))
				}
			}
			apply := exec.Command("git", "apply", "-C1", diff)
			apply.Dir = dir
			if out, err := apply.CombinedOutput(); err != nil {
				t.Fatalf("%s.diff does not apply; make it anew: %v\n%s", walk, err, out)
			}
			if testing.Short() {
				return
			}
			list := must.Get(json.Marshal(overlay))(t)
			place := filepath.Join(dir, "overlay.json")
			must.Do(t, os.WriteFile(place, list, 0o644))
			if out, err := exec.Command("go",
				append([]string{"test", "-short", "-overlay", place},
					w.packages...)...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
