//go:build !unix

package bench

import "time"

// processorTime returns the wall-clock time, where that of the process is not known.
func processorTime() time.Duration { return time.Since(started) }
