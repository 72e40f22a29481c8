package regularfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"fmp/onnx/must"
)

// TestGuard: a file that is to be overwritten is not read by any of its names, until it is free;
// one that was written meanwhile is.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	must.Do(t, os.WriteFile(path, []byte("old"), 0o600))
	if err := os.Symlink("a", link); err != nil {
		t.Skip(err)
	}
	info := must.Get(os.Stat(path))(t)
	release := Guard([]fs.FileInfo{info})
	defer release()
	for _, name := range []string{path, link} {
		if _, err := ReadFile(name, 10); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: %v; want %v", name, err, ErrOutput)
		}
	}
	must.Do(t, os.WriteFile(path, []byte("new and longer"), 0o600))
	if _, err := ReadFile(path, 20); err != nil {
		t.Errorf("what was written is not read: %v", err)
	}
	info = must.Get(os.Stat(path))(t)
	second := Guard([]fs.FileInfo{info})
	release()
	if _, err := ReadFile(path, 20); !errors.Is(err, ErrOutput) {
		t.Errorf("another's guard was lifted: %v", err)
	}
	second()
	if _, err := ReadFile(path, 20); err != nil {
		t.Errorf("the file is not free: %v", err)
	}
}
