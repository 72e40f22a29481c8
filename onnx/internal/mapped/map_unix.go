//go:build unix

package mapped

import (
	"os"
	"syscall"
)

// mapFile returns the bytes of a file without reading them: pages come when they are looked at, and
// go again where memory is short.
func mapFile(f *os.File, size int64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}
