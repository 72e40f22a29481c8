#include "textflag.h"

// The tile is written once for both types of number: t is the type's arrangement of a register, 1 << shift is its size in bytes.

#define ROW(t, at, s0, s1, s2, s3) \
	VLD1R (at), [V4.t]; \
	ADD   R7, at; \
	VFMLA V0.t, V4.t, s0.t; \
	VFMLA V1.t, V4.t, s1.t; \
	VFMLA V2.t, V4.t, s2.t; \
	VFMLA V3.t, V4.t, s3.t

// Sums begin with what c holds.
#define LOAD(t, s0, s1, s2, s3) \
	VLD1 (R13), [s0.t, s1.t, s2.t, s3.t]; \
	ADD  R10, R13

#define SAVE(t, s0, s1, s2, s3) \
	VST1 [s0.t, s1.t, s2.t, s3.t], (R9); \
	ADD  R10, R9

// V12 to V31 hold the five rows of c, four registers each; R1 to R5 point to the rows of a.
#define TILE(t, shift) \
	MOVD d+0(FP), R0; \
	MOVD a+8(FP), R1; \
	MOVD rs+16(FP), R6; \
	MOVD ks+24(FP), R7; \
	MOVD b+32(FP), R8; \
	MOVD c+40(FP), R9; \
	MOVD cs+48(FP), R10; \
	LSL  $shift, R6; \
	LSL  $shift, R7; \
	LSL  $shift, R10; \
	ADD  R6, R1, R2; \
	ADD  R6, R2, R3; \
	ADD  R6, R3, R4; \
	ADD  R6, R4, R5; \
	MOVD R9, R13; \
	LOAD(t, V12, V13, V14, V15); \
	LOAD(t, V16, V17, V18, V19); \
	LOAD(t, V20, V21, V22, V23); \
	LOAD(t, V24, V25, V26, V27); \
	LOAD(t, V28, V29, V30, V31); \
loop: \
	VLD1.P 64(R8), [V0.t, V1.t, V2.t, V3.t]; \
	ROW(t, R1, V12, V13, V14, V15); \
	ROW(t, R2, V16, V17, V18, V19); \
	ROW(t, R3, V20, V21, V22, V23); \
	ROW(t, R4, V24, V25, V26, V27); \
	ROW(t, R5, V28, V29, V30, V31); \
	SUBS   $1, R0; \
	BNE    loop; \
	SAVE(t, V12, V13, V14, V15); \
	SAVE(t, V16, V17, V18, V19); \
	SAVE(t, V20, V21, V22, V23); \
	SAVE(t, V24, V25, V26, V27); \
	SAVE(t, V28, V29, V30, V31); \
	RET

// func tile5x8(d int, a *float64, rs, ks int, b *float64, c *float64, cs int)
TEXT ·tile5x8(SB), NOSPLIT, $0-56
	TILE(D2, 3)

// func tile5x16s(d int, a *float32, rs, ks int, b *float32, c *float32, cs int)
TEXT ·tile5x16s(SB), NOSPLIT, $0-56
	TILE(S4, 2)
