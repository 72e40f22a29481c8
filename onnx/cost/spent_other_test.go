//go:build !unix

package cost

import "time"

var began = time.Now()

// spent is the time since the start of this process.
func spent() time.Duration { return time.Since(began) }
