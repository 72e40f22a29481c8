//go:build !unix

package processor

import "time"

// Time returns the wall-clock time, where that of the process is not known.
func Time() time.Duration { return time.Since(started) }
