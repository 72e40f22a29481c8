#include "textflag.h"

#define ROW(at, s0, s1, s2, s3) \
	VLD1R (at), [V4.D2]; \
	ADD   R7, at; \
	VFMLA V0.D2, V4.D2, s0.D2; \
	VFMLA V1.D2, V4.D2, s1.D2; \
	VFMLA V2.D2, V4.D2, s2.D2; \
	VFMLA V3.D2, V4.D2, s3.D2

// Sums begin with what c holds.
#define LOAD(s0, s1, s2, s3) \
	VLD1 (R13), [s0.D2, s1.D2, s2.D2, s3.D2]; \
	ADD  R10, R13

#define SAVE(s0, s1, s2, s3) \
	VST1 [s0.D2, s1.D2, s2.D2, s3.D2], (R9); \
	ADD  R10, R9

// func tile5x8(d int, a *float64, rs, ks int, b *float64, c *float64, cs int)
//
// V12 to V31 hold the five rows of c, four registers each; R1 to R5 point to the rows of a.
TEXT ·tile5x8(SB), NOSPLIT, $0-56
	MOVD d+0(FP), R0
	MOVD a+8(FP), R1
	MOVD rs+16(FP), R6
	MOVD ks+24(FP), R7
	MOVD b+32(FP), R8
	MOVD c+40(FP), R9
	MOVD cs+48(FP), R10
	LSL  $3, R6
	LSL  $3, R7
	LSL  $3, R10
	ADD  R6, R1, R2
	ADD  R6, R2, R3
	ADD  R6, R3, R4
	ADD  R6, R4, R5
	MOVD R9, R13
	LOAD(V12, V13, V14, V15)
	LOAD(V16, V17, V18, V19)
	LOAD(V20, V21, V22, V23)
	LOAD(V24, V25, V26, V27)
	LOAD(V28, V29, V30, V31)

loop:
	VLD1.P 64(R8), [V0.D2, V1.D2, V2.D2, V3.D2]
	ROW(R1, V12, V13, V14, V15)
	ROW(R2, V16, V17, V18, V19)
	ROW(R3, V20, V21, V22, V23)
	ROW(R4, V24, V25, V26, V27)
	ROW(R5, V28, V29, V30, V31)
	SUBS   $1, R0
	BNE    loop

	SAVE(V12, V13, V14, V15)
	SAVE(V16, V17, V18, V19)
	SAVE(V20, V21, V22, V23)
	SAVE(V24, V25, V26, V27)
	SAVE(V28, V29, V30, V31)
	RET
