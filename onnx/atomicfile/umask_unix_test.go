//go:build unix

package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
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
