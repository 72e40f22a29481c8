//go:build !amd64 && !arm64

package kernel

const (
	canFlush  = false
	flushBits = 0
)

func control() uint32 { return 0 }

func setControl(uint32) {}
