package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestClientFolders: all folders are clients but hidden ones; files are named as left out, and a
// link is refused.
func TestClientFolders(t *testing.T) {
	for name, x := range map[string]struct {
		folders, files, links []string
		want                  []string // none: an error
		left                  int
	}{
		"folders": {[]string{"b", "a", ".cache"}, []string{"stray.png", "notes.txt", ".DS_Store"}, nil,
			[]string{"a", "b"}, 2},
		"a link":   {[]string{"a"}, nil, []string{"b"}, nil, 0},
		"no other": {[]string{".cache"}, []string{"stray.png"}, nil, nil, 0},
	} {
		dir, far := t.TempDir(), t.TempDir()
		for _, f := range x.folders {
			must.Do(t, os.Mkdir(filepath.Join(dir, f), 0o755))
		}
		for _, f := range x.files {
			must.Do(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
		}
		for _, f := range x.links {
			must.Do(t, os.Symlink(far, filepath.Join(dir, f)))
		}
		got, left, err := clientFolders(dir)
		if !slices.Equal(got, x.want) || (err != nil) != (x.want == nil) || err == nil && left.N != x.left {
			t.Errorf("%s: %v, %v, %v; want %v and %d files", name, got, left, err, x.want, x.left)
		}
		if x.links != nil && !strings.Contains(err.Error(), "is a link") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
