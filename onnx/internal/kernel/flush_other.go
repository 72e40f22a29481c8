//go:build !amd64 && !arm64

package kernel

const (
	canFlush  = false
	flushBits = 0
)

// control and setControl stand for a register that these processors lack, or whose bits are not
// known here.
func control() uint32 { return 0 }

func setControl(uint32) {}
