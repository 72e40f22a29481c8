//go:build unix

package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"fmp/onnx/must"
)

// TestUmask: a file is readable by others as the umask says.
func TestUmask(t *testing.T) {
	for mask, want := range map[int]os.FileMode{0o022: 0o644, 0o077: 0o600, 0: 0o644} {
		path := filepath.Join(t.TempDir(), "file")
		before := syscall.Umask(mask)
		err := WriteBytes(path, []byte("x"))
		syscall.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("umask %o: %v, %v; want %v", mask, st.Mode(), err, want)
		}
	}
}

// TestPrivateFile: what only its owner may read has no other permissions, whatever the umask, and
// also where a file that others could read was there.
func TestPrivateFile(t *testing.T) {
	for mask, want := range map[int]os.FileMode{0o022: 0o600, 0o077: 0o600, 0: 0o600, 0o277: 0o400} {
		path := filepath.Join(t.TempDir(), "file")
		must.Do(t, os.WriteFile(path, []byte("old"), 0o644))
		before := syscall.Umask(mask)
		err := WritePrivate(path, []byte("x"))
		syscall.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("umask %o: %v, %v; want %v", mask, st.Mode(), err, want)
		}
	}
}
