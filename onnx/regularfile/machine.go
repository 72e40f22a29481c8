package regularfile

import (
	"errors"
	"syscall"
)

// OfMachine reports whether an error is the machine's, as of a full disk or of a network share that
// fails. No other file or command line mends it, and none depends on the content of a file.
func OfMachine(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && ofMachine(errno)
}
