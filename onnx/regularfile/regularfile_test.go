//go:build unix

package regularfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fmp/onnx/must"
)

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	file, pipe, link := filepath.Join(dir, "file"), filepath.Join(dir, "pipe"),
		filepath.Join(dir, "link")
	must.Do(t, os.WriteFile(file, []byte("12345"), 0o600))
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("needs named pipes: %v", err)
	}
	must.Do(t, os.Symlink(pipe, link))
	root := must.Get(os.OpenRoot(dir))(t)
	defer root.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for path, want := range map[string]string{pipe: "a named pipe", link: "a named pipe",
			dir: "a folder", os.DevNull: "a device",
			file + "2": "no such file"} {
			if f, err := Open(path); err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("Open(%s) gave %v, %v; want an error with %q", path, f, err, want)
			}
			must.Fail(ReadFile(path, 100))(t, want, path)
		}
		must.Fail(OpenIn(root, "pipe"))(t, "a named pipe")
		f, err := OpenIn(root, "file")
		if err != nil {
			t.Error(err)
			return
		}
		f.Close()
		if data, err := ReadFile(file, 5); err != nil || string(data) != "12345" {
			t.Errorf("a file of 5 bytes gave %q, %v", data, err)
		}
		if data, err := ReadFile(file, 4); err == nil ||
			!strings.Contains(err.Error(), "at most 4 bytes") {
			t.Errorf("a file of 5 bytes within 4 gave %q, %v", data, err)
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a named pipe is waited for")
	}
}
