//go:build unix

package processor

import (
	"syscall"
	"time"
)

// Time returns the processor time used by this process so far: on a shared machine, waiting does
// not count.
func Time() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return time.Since(started)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
