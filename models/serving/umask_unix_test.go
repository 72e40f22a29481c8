//go:build unix

package serving

import (
	"os"
	"syscall"
	"testing"

	"fmp/onnx/must"
)

// TestUmask: others may read a package as the umask says.
func TestUmask(t *testing.T) {
	data := classifier(t, "a", "b")
	for mask, want := range map[int]os.FileMode{0o022: 0o755, 0o077: 0o700} {
		before := syscall.Umask(mask)
		dir, _ := written(t, data, options())
		syscall.Umask(before)
		if got := must.Get(os.Stat(dir))(t).Mode().Perm(); got != want {
			t.Errorf("umask %o: %o; want %o", mask, got, want)
		}
	}
}
