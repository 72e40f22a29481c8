//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processorTime is what this process has used so far: of a machine that others use too, waiting for its turn does not count.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return time.Since(started)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
