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
		"d": filepath.Join(far, "run", RunFile), "e": filepath.Join(far, "gone"),
		"f": "c", "0": "."} {
		must.Do(t, os.Symlink(to, filepath.Join(root, name)))
	}
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(root, link))
	t.Chdir(filepath.Dir(root))
	for _, from := range []string{root, link, filepath.Base(root)} {
		var got []string
		for _, s := range must.Get(List(from))(t) {
			got = append(got, s.Path)
		}
		if want := []string{filepath.Join(from, "a"), filepath.Join(from, "c")}; !slices.Equal(got, want) {
			t.Errorf("%s: runs %v; want %v", from, got, want)
		}
	}
	t.Chdir(root)
	if got := must.Get(List("c"))(t); len(got) != 1 || got[0].Path != "c" {
		t.Errorf("the run itself: %v", got)
	}
}
