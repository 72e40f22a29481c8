package regularfile

import (
	"syscall"
	"testing"
)

// TestOfMachine: a full disk is the machine's error, and a missing file is not.
func TestOfMachine(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{2: false, 5: false, 32: false, 123: false,
		4: true, 39: true, 112: true, 1117: true} {
		if got := OfMachine(errno); got != want {
			t.Errorf("%v: %t, want %t", errno, got, want)
		}
	}
}
