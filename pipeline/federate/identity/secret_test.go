package identity

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fmp/onnx/must"
)

// TestSaveSecret: a secret is saved once, under the longest names too, also where the file system has no
// links; what a killed program left is removed.
func TestSaveSecret(t *testing.T) {
	defer func() { link = os.Link }()
	none := func(string, string) error { return errors.ErrUnsupported }
	for name, c := range map[string]struct {
		link func(string, string) error
		file string
	}{"links": {os.Link, "a.key"}, "none": {none, "a.key"}, "a long name": {os.Link, strings.Repeat("a", 255)}} {
		linked := false
		link = func(from, to string) error { linked = true; return c.link(from, to) }
		dir := t.TempDir()
		path, left := filepath.Join(dir, c.file), filepath.Join(dir, unfinished+"X.tmp")
		must.Do(t, os.WriteFile(left, nil, 0o600))
		old := time.Now().Add(-2 * time.Hour)
		must.Do(t, os.Chtimes(left, old, old))
		must.Do(t, SaveSecret(path, []byte("first")))
		if !linked { // it was written in its place
			t.Errorf("%s: half of it could be read", name)
		}
		must.Fail(SaveSecret(path, []byte("second")))(t, "there already", name)
		if got := must.Get(ReadSecret(path, 10))(t); string(got) != "first" {
			t.Errorf("%s: %q", name, got)
		}
		other := filepath.Join(dir, "b.key") // which another process makes meanwhile
		link = func(from, to string) error {
			return errors.Join(os.WriteFile(to, []byte("b"), 0o600), c.link(from, to))
		}
		err := SaveSecret(other, []byte("late"))
		if got := must.Get(ReadSecret(other, 10))(t); string(got) != "b" || !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s, meanwhile: %q, %v", name, got, err)
		}
		if is := must.Get(os.ReadDir(dir))(t); len(is) != 2 {
			t.Errorf("%s: the folder has %v", name, is)
		}
	}
}
