//go:build !js

package interrupt

import (
	"os"
	"syscall"
)

// closes are the signals of a terminal that closes.
var closes = []os.Signal{syscall.SIGHUP}
