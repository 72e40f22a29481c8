#include "textflag.h"

// func alongY(n, taps int, sums *int32, row *int16, first *int, weights *int16)
//
// CX sums left, DX bytes of an output's weights, DI at sums, SI row, BX at first, R8 at weights, R9 at values, R10 bytes done;
// Y0 the sums of eight lanes, Y1 sixteen values.
TEXT ·alongY(SB), NOSPLIT, $0-48
	MOVQ n+0(FP), CX
	MOVQ taps+8(FP), DX
	MOVQ sums+16(FP), DI
	MOVQ row+24(FP), SI
	MOVQ first+32(FP), BX
	MOVQ weights+40(FP), R8
	SHLQ $1, DX

output:
	MOVQ  (BX), R9
	LEAQ  (SI)(R9*2), R9
	XORQ  R10, R10
	VPXOR Y0, Y0, Y0

group:
	VMOVDQU  (R9)(R10*1), Y1
	VPMADDWD (R8)(R10*1), Y1, Y1
	VPADDD   Y1, Y0, Y0
	ADDQ     $32, R10
	CMPQ     R10, DX
	JLT      group

	VEXTRACTI128 $1, Y0, X1
	VPADDD       X1, X0, X0
	VPSHUFD      $0x4e, X0, X1
	VPADDD       X1, X0, X0
	VPSHUFD      $0xb1, X0, X1
	VPADDD       X1, X0, X0
	VMOVD        X0, (DI)
	ADDQ         $4, DI
	ADDQ         $8, BX
	ADDQ         DX, R8
	DECQ         CX
	JNZ          output
	VZEROUPPER
	RET

// func downY(n, pairs int, dst *int16, rows *uint8, stride int, weights *int16, half int, shift int)
//
// CX values left, DX pairs left, DI at dst, SI at rows, R8 stride, R9 weights, R10 at a pair of rows, R11 at its weights;
// Y0 and Y1 the sums of eight columns each, Y2 to Y4 a pair's bytes and weights, Y14 half, X15 shift.
TEXT ·downY(SB), NOSPLIT, $0-64
	MOVQ         n+0(FP), CX
	MOVQ         dst+16(FP), DI
	MOVQ         rows+24(FP), SI
	MOVQ         stride+32(FP), R8
	MOVQ         weights+40(FP), R9
	VPBROADCASTD half+48(FP), Y14
	VMOVQ        shift+56(FP), X15

columns:
	MOVQ    pairs+8(FP), DX
	MOVQ    SI, R10
	MOVQ    R9, R11
	VMOVDQA Y14, Y0
	VMOVDQA Y14, Y1

pair:
	VMOVDQU      (R10), X2
	VMOVDQU      (R10)(R8*1), X3
	VPBROADCASTD (R11), Y4
	VPUNPCKLBW   X3, X2, X5
	VPUNPCKHBW   X3, X2, X6
	VPMOVZXBW    X5, Y5
	VPMOVZXBW    X6, Y6
	VPMADDWD     Y4, Y5, Y5
	VPMADDWD     Y4, Y6, Y6
	VPADDD       Y5, Y0, Y0
	VPADDD       Y6, Y1, Y1
	LEAQ         (R10)(R8*2), R10
	ADDQ         $4, R11
	DECQ         DX
	JNZ          pair

	VPSRAD    X15, Y0, Y0
	VPSRAD    X15, Y1, Y1
	VPACKSSDW Y1, Y0, Y0
	VPERMQ    $0xd8, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $32, DI
	ADDQ      $16, SI
	SUBQ      $16, CX
	JNZ       columns
	VZEROUPPER
	RET
