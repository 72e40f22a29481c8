package experiment

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"fmp/onnx/must"
)

// TestListFollowsLinks: a link to a run directory is a run, and hides none that come after it.
func TestListFollowsLinks(t *testing.T) {
	root, far := t.TempDir(), t.TempDir()
	started := func(path string) {
		d := must.Get(Open(path, small(), Manifest{Identity: "x"}))(t)
		must.Do(t, d.Close())
	}
	started(filepath.Join(far, "run"))
	started(filepath.Join(root, "c"))
	for name, to := range map[string]string{"a": filepath.Join(far, "run"), "b": far,
		"d": filepath.Join(far, "run", RunFile), "e": filepath.Join(far, "gone")} {
		must.Do(t, os.Symlink(to, filepath.Join(root, name)))
	}
	var got []string
	for _, s := range must.Get(List(root))(t) {
		got = append(got, filepath.Base(s.Path))
	}
	if want := []string{"a", "c"}; !slices.Equal(got, want) {
		t.Errorf("runs %v; want %v", got, want)
	}
}
