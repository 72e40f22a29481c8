//go:build unix && !solaris && !illumos && !aix

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// Lock takes an open folder for this process until the file is closed or the process ends, however it ends;
// false where another process has it. File systems without locks let everybody in.
func Lock(f *os.File) bool {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return !errors.Is(err, syscall.EWOULDBLOCK)
}
