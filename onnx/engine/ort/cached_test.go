package ort

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// TestChangedLibrary: a library in the cache with one byte changed is not loaded, nor is a link in
// its place; one elsewhere is its owner's.
func TestChangedLibrary(t *testing.T) {
	files, known := libraryFiles[runtime.GOOS+"/"+runtime.GOARCH]
	if !known {
		t.Skip("no library is published for this platform")
	}
	good := must.Get(CacheDir())(t)
	cache := filepath.Join(t.TempDir(), "cache")
	t.Setenv("XDG_CACHE_HOME", cache)
	dir := must.Get(CacheDir())(t)
	path := touch(t, filepath.Join(dir, files[len(files)-1].name))
	changed := func(when, path string) {
		t.Helper()
		if err := load(path); err == nil ||
			!strings.Contains(err.Error(), "not the published one and is not loaded") {
			// by a test before
			if envLibrary == "" || err == nil || !strings.Contains(err.Error(), "already loaded") {
				t.Errorf("%s: %v", when, err)
			}
		}
		real := must.Get(filepath.EvalSymlinks(path))(t)
		must.Fail(checkCached(path, real))(t, "fmp setup fetches it again", when)
	}
	changed("another file", path)
	elsewhere := touch(t, filepath.Join(t.TempDir(), "own.so"))
	if err := checkCached(elsewhere, elsewhere); err != nil {
		t.Errorf("a library of the user's own: %v", err)
	}
	must.Do(t, os.Remove(path))
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Skip(err)
	}
	changed("a link in its place", path)
	linked := filepath.Join(t.TempDir(), "link.so")
	must.Do(t, os.Symlink(path, linked))
	if present(good, files) != nil {
		t.Skip("no library in the cache to change a byte of")
	}
	os.Remove(path)
	for _, f := range files {
		from := must.Get(os.Open(filepath.Join(good, f.name)))(t)
		to, err := os.Create(filepath.Join(dir, f.name))
		if err == nil {
			_, err = io.Copy(to, from)
		}
		from.Close()
		if err != nil {
			t.Fatal(err)
		}
		to.Close()
	}
	if err := checkCached(path, path); err != nil {
		t.Errorf("the published library: %v", err)
	}
	f := must.Get(os.OpenFile(path, os.O_RDWR, 0))(t)
	var b [1]byte
	f.ReadAt(b[:], 1_000_000)
	b[0]++
	f.WriteAt(b[:], 1_000_000)
	f.Close()
	changed("a byte", path)
	changed("a byte, by a link from elsewhere", linked)
}
