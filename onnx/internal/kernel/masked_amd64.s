#include "textflag.h"

// TAP adds Z4, a weight, times what lies at BX to 16 sums, but for those that the next mask leaves out.
#define TAP(mask, at, sum) \
	KMOVW       mask(R11), K1         \
	VFMADD231PS at(BX), Z4, K1, sum

// FINISH scales, shifts and bounds 16 sums and writes those that the next mask names.
#define FINISH(mask, at, sum) \
	VMULPS  Z6, sum, sum         \
	VADDPS  Z7, sum, sum         \
	VMAXPS  sum, Z8, sum         \
	VMINPS  sum, Z9, sum         \
	KMOVW   mask(R11), K1        \
	VMOVUPS sum, K1, at(DI)

// func tapSumsZ(taps, groups int, dst, src *float32, offsets *int, weights *float32, masks *uint16, f *finishing)
//
// R8 taps, DX groups left, DI outputs, SI the source at the outputs' place, R9 offsets, R10 weights, R11 masks, CX the tap;
// Z0 to Z3 the sums of a group, Z5 where they start, Z6 to Z9 scale, shift and bounds. A lane that is masked reads nothing.
TEXT ·tapSumsZ(SB), NOSPLIT, $0-64
	MOVQ         taps+0(FP), R8
	MOVQ         groups+8(FP), DX
	MOVQ         dst+16(FP), DI
	MOVQ         src+24(FP), SI
	MOVQ         offsets+32(FP), R9
	MOVQ         weights+40(FP), R10
	MOVQ         masks+48(FP), R11
	MOVQ         f+56(FP), R12
	VBROADCASTSS (R12), Z5
	VBROADCASTSS 4(R12), Z6
	VBROADCASTSS 8(R12), Z7
	VBROADCASTSS 12(R12), Z8
	VBROADCASTSS 16(R12), Z9

group:
	VMOVAPS Z5, Z0
	VMOVAPS Z5, Z1
	VMOVAPS Z5, Z2
	VMOVAPS Z5, Z3
	XORQ    CX, CX

tap:
	MOVQ         (R9)(CX*8), AX
	VBROADCASTSS (R10)(CX*4), Z4
	LEAQ         (SI)(AX*4), BX
	TAP(0, 0, Z0)
	TAP(2, 64, Z1)
	TAP(4, 128, Z2)
	TAP(6, 192, Z3)
	ADDQ         $8, R11
	INCQ         CX
	CMPQ         CX, R8
	JL           tap
	FINISH(0, 0, Z0)
	FINISH(2, 64, Z1)
	FINISH(4, 128, Z2)
	FINISH(6, 192, Z3)
	ADDQ         $8, R11
	ADDQ         $256, SI
	ADDQ         $256, DI
	DECQ         DX
	JNZ          group
	VZEROUPPER
	RET
