//go:build unix

package processor

import (
	"syscall"
	"time"
)

// Time returns the processor time used by this process so far: on a shared machine, waiting does
// not count. It is user and system time of all threads of the process, and none of its children's.
// A failing call falls back to wall-clock time since the start.
func Time() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return time.Since(started)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
