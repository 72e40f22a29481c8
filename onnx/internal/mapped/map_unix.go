//go:build unix

package mapped

import (
	"os"
	"syscall"
)

// mapFile returns the bytes of a file without reading them: pages come when they are looked at, and
// go again where memory is short. The file that it returns is the same one, open a second time.
func mapFile(f *os.File, path string, size int64) (*os.File, []byte, error) {
	syscall.ForkLock.RLock() // no program starts between the two calls, which would inherit it
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	own := os.NewFile(uintptr(fd), path)
	data, err := syscall.Mmap(fd, 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		own.Close()
		return nil, nil, err
	}
	return own, data, nil
}
