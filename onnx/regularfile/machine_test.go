//go:build unix

package regularfile

import (
	"errors"
	"io/fs"
	"syscall"
	"testing"
)

// TestOfMachine: an error is the machine's unless it is known to be a file's, a name's or an
// address's, and one that no system call gave is not.
func TestOfMachine(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errors.New("cut off"): false, fs.ErrNotExist: false,
		syscall.ENOENT: false, syscall.EACCES: false, syscall.EPERM: false, syscall.ELOOP: false,
		syscall.ENOTDIR: false, syscall.EISDIR: false, syscall.ENAMETOOLONG: false,
		syscall.EINVAL: false, syscall.ENXIO: false, syscall.EADDRINUSE: false,
		syscall.EIO: true, syscall.ENOSPC: true, syscall.EMFILE: true, syscall.ESTALE: true,
		syscall.ETIMEDOUT: true, syscall.ENETDOWN: true, syscall.ENETUNREACH: true,
		syscall.EHOSTUNREACH: true, syscall.EHOSTDOWN: true, syscall.ECONNRESET: true,
		syscall.ENODEV: true, syscall.Errno(4000): true,
	} {
		wrapped := err
		if err != nil {
			wrapped = &fs.PathError{Op: "read", Path: "x", Err: err}
		}
		if got := OfMachine(wrapped); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
}
