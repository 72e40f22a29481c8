//go:build !windows

package regularfile

import (
	"slices"
	"syscall"
)

// own are the errors of a file, a name or an address. All others are the machine's: a system with
// errors of its own for a disk or a share has them counted so. ENXIO is that of opening a socket,
// and EBADF that of WebAssembly for a folder outside those that it is given.
var own = []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ELOOP,
	syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.EILSEQ,
	syscall.EEXIST, syscall.ENOTEMPTY, syscall.EROFS, syscall.EXDEV,
	syscall.EOVERFLOW, syscall.ENXIO, syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.ESPIPE,
	syscall.ENOTTY, syscall.EBADF, syscall.EADDRINUSE, syscall.EADDRNOTAVAIL,
	syscall.EAFNOSUPPORT, syscall.ECONNREFUSED}

func ofMachine(errno syscall.Errno) bool { return !slices.Contains(own, errno) }
