#include "textflag.h"

// func control() uint32
TEXT ·control(SB), NOSPLIT, $8-4
	STMXCSR 0(SP)
	MOVL    0(SP), AX
	MOVL    AX, ret+0(FP)
	RET

// func setControl(v uint32)
TEXT ·setControl(SB), NOSPLIT, $8-4
	MOVL    v+0(FP), AX
	MOVL    AX, 0(SP)
	LDMXCSR 0(SP)
	RET
