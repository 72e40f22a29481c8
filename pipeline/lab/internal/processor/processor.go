// Package processor measures the processor time of the process.
package processor

import "time"

// started is the zero of a clock that stands in where the processor time is not known. It is read
// by differences alone, so that its origin does not matter.
var started = time.Now()
