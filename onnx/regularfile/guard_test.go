package regularfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestGuard: a file that is to be overwritten is not read by any of its names, until it is free;
// one that was written meanwhile is.
func TestGuard(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", link); err != nil {
		t.Skip(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	release := Guard([]fs.FileInfo{info})
	defer release()
	for _, name := range []string{path, link} {
		if _, err := ReadFile(name, 10); !errors.Is(err, ErrOutput) {
			t.Errorf("%s: %v; want %v", name, err, ErrOutput)
		}
	}
	if err := os.WriteFile(path, []byte("new and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, 20); err != nil {
		t.Errorf("what was written is not read: %v", err)
	}
	if info, err = os.Stat(path); err != nil {
		t.Fatal(err)
	}
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
