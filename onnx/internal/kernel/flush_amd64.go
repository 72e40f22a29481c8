package kernel

// canFlush says that the processor's control word is at hand; flushBits are the bits of MXCSR that
// take operands (DAZ) and results (FTZ) below the normal range for zeros.
const (
	canFlush  = true
	flushBits = 1<<15 | 1<<6
)

//go:noescape
func control() uint32

//go:noescape
func setControl(v uint32)
