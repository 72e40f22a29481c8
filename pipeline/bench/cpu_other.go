//go:build !unix

package bench

import "time"

// processorTime is the time by the clock, where a process' own is not known.
func processorTime() time.Duration { return time.Since(started) }
