package kernel

// canFlush says that the processor's control word is at hand; flushBits is the bit FZ of FPCR,
// which takes operands and results below the normal range for zeros.
const (
	canFlush  = true
	flushBits = 1 << 24
)

//go:noescape
func control() uint64

//go:noescape
func setControl(v uint64)
