//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processorTime returns the CPU time used by this process so far: on a shared machine, waiting does not count.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return time.Since(started)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
