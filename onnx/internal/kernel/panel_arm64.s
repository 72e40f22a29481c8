#include "textflag.h"

// FUSED is VFMLA of registers by their numbers. STEPS rounds the product, in V9: FMUL and FADD, for which the assembler has no names.
#define FUSED(x, y, to) WORD $(0x4E20CC00 | x<<16 | y<<5 | to)

#define STEPS(x, y, to) \
	WORD $(0x6E20DC00 | x<<16 | y<<5 | 9) \
	WORD $(0x4E20D400 | 9<<16 | to<<5 | to)

#define PANEL4X16(add) \
	MOVD k+0(FP), R0; \
	MOVD a+8(FP), R1; \
	MOVD b+16(FP), R2; \
	MOVD c+24(FP), R3; \
	MOVD stride+32(FP), R4; \
	LSL  $2, R4; \
	ADD  R4, R3, R5; \
	ADD  R4, R5, R6; \
	ADD  R4, R6, R7; \
	VLD1 (R3), [V16.S4, V17.S4, V18.S4, V19.S4]; \
	VLD1 (R5), [V20.S4, V21.S4, V22.S4, V23.S4]; \
	VLD1 (R6), [V24.S4, V25.S4, V26.S4, V27.S4]; \
	VLD1 (R7), [V28.S4, V29.S4, V30.S4, V31.S4]; \
loop: \
	VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]; \
	VLD1.P 16(R1), [V4.S4]; \
	VDUP   V4.S[0], V5.S4; \
	VDUP   V4.S[1], V6.S4; \
	VDUP   V4.S[2], V7.S4; \
	VDUP   V4.S[3], V8.S4; \
	add(0, 5, 16); \
	add(1, 5, 17); \
	add(2, 5, 18); \
	add(3, 5, 19); \
	add(0, 6, 20); \
	add(1, 6, 21); \
	add(2, 6, 22); \
	add(3, 6, 23); \
	add(0, 7, 24); \
	add(1, 7, 25); \
	add(2, 7, 26); \
	add(3, 7, 27); \
	add(0, 8, 28); \
	add(1, 8, 29); \
	add(2, 8, 30); \
	add(3, 8, 31); \
	SUBS   $1, R0; \
	BNE    loop; \
	VST1 [V16.S4, V17.S4, V18.S4, V19.S4], (R3); \
	VST1 [V20.S4, V21.S4, V22.S4, V23.S4], (R5); \
	VST1 [V24.S4, V25.S4, V26.S4, V27.S4], (R6); \
	VST1 [V28.S4, V29.S4, V30.S4, V31.S4], (R7); \
	RET

// func panel4x16(k int, a, b, c *float32, stride int)
//
// V16 to V31 hold the four rows of c, four registers each.
TEXT ·panel4x16(SB), NOSPLIT, $0-40
	PANEL4X16(FUSED)

// func panelSteps4x16(k int, a, b, c *float32, stride int)
TEXT ·panelSteps4x16(SB), NOSPLIT, $0-40
	PANEL4X16(STEPS)
