// Package processor measures the processor time of the process.
package processor

import "time"

// started is the zero of a clock that stands in where the processor time is not known.
var started = time.Now()
