package regularfile

import (
	"errors"
	"slices"
	"syscall"
)

// machine are the errors of a system without space, memory or files to open, and of a disk or a
// network share that fails. None depends on the content of a file.
var machine = []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.ENOMEM,
	syscall.EMFILE, syscall.ENFILE, syscall.EIO, syscall.ESTALE, syscall.ENOTCONN,
	syscall.EHOSTDOWN}

// OfMachine reports whether an error is the machine's: no other file or command line mends it.
func OfMachine(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && slices.Contains(machine, errno)
}
