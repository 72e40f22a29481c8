//go:build unix

package serde

import (
	"os"
	"syscall"
)

// mapFile returns the bytes of a file without reading them: pages come when they are looked at, and
// go again where memory is short. The mapping lasts as long as the process, since tensors share it.
func mapFile(f *os.File, size int64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}
