//go:build unix

package cost

import (
	"syscall"
	"time"
)

// spent is the processor's time of this process: other programs' load does not count.
func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
