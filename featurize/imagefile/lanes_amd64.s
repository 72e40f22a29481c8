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

// func downWordsY(n, pairs int, dst *int16, rows *int16, stride int, weights *int16, half int, shift int)
//
// As downY, with Y2 and Y3 the values of two rows; a stride in R8 is of bytes.
TEXT ·downWordsY(SB), NOSPLIT, $0-64
	MOVQ         n+0(FP), CX
	MOVQ         dst+16(FP), DI
	MOVQ         rows+24(FP), SI
	MOVQ         stride+32(FP), R8
	MOVQ         weights+40(FP), R9
	VPBROADCASTD half+48(FP), Y14
	VMOVQ        shift+56(FP), X15
	SHLQ         $1, R8

wordColumns:
	MOVQ    pairs+8(FP), DX
	MOVQ    SI, R10
	MOVQ    R9, R11
	VMOVDQA Y14, Y0
	VMOVDQA Y14, Y1

wordPair:
	VMOVDQU      (R10), Y2
	VMOVDQU      (R10)(R8*1), Y3
	VPBROADCASTD (R11), Y4
	VPUNPCKLWD   Y3, Y2, Y5
	VPUNPCKHWD   Y3, Y2, Y6
	VPMADDWD     Y4, Y5, Y5
	VPMADDWD     Y4, Y6, Y6
	VPADDD       Y5, Y0, Y0
	VPADDD       Y6, Y1, Y1
	LEAQ         (R10)(R8*2), R10
	ADDQ         $4, R11
	DECQ         DX
	JNZ          wordPair

	VPSRAD    X15, Y0, Y0
	VPSRAD    X15, Y1, Y1
	VPACKSSDW Y1, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $32, DI
	ADDQ      $32, SI
	SUBQ      $16, CX
	JNZ       wordColumns
	VZEROUPPER
	RET

// FACTOR broadcasts a constant.
#define FACTOR(v, x, y) \
	MOVL         $v, AX \
	VMOVD        AX, x \
	VPBROADCASTD x, y

// COLOUR writes sixteen bytes of a colour: those of even pixels are the sums of Y6 and colour, those of odd ones of Y5.
#define COLOUR(colour, to) \
	VPADDD    colour, Y6, Y7 \
	VPADDD    colour, Y5, Y0 \
	VPSRLD    $16, Y7, Y7 \
	VPBLENDW  $0xaa, Y0, Y7, Y7 \
	VPACKUSWB Y7, Y7, Y7 \
	VPERMQ    $8, Y7, Y7 \
	VMOVDQU   X7, (to) \
	ADDQ      $16, to

// func pairsY(n int, luma, cb, cr, red, green, blue *uint8)
//
// CX pixels left, SI luma, R8 and R9 cb and cr, R10 to R12 the planes; Y0 and Y1 cb and cr, Y2 to Y4 what they add to the colours, Y5 and
// Y6 luma of odd and even pixels in units of 2^-16, Y9 to Y15 constants.
TEXT ·pairsY(SB), NOSPLIT, $0-56
	MOVQ n+0(FP), CX
	MOVQ luma+8(FP), SI
	MOVQ cb+16(FP), R8
	MOVQ cr+24(FP), R9
	MOVQ red+32(FP), R10
	MOVQ green+40(FP), R11
	MOVQ blue+48(FP), R12
	FACTOR(0xff, X9, Y9)
	FACTOR(0x10101, X10, Y10)
	FACTOR(116130, X11, Y11)
	FACTOR(46802, X12, Y12)
	FACTOR(22554, X13, Y13)
	FACTOR(91881, X14, Y14)
	FACTOR(128, X15, Y15)

pixels:
	VPMOVZXBD (R8), Y0
	VPMOVZXBD (R9), Y1
	VPSUBD    Y15, Y0, Y0
	VPSUBD    Y15, Y1, Y1
	VPMULLD   Y14, Y1, Y2
	VPMULLD   Y13, Y0, Y3
	VPMULLD   Y12, Y1, Y4
	VPADDD    Y4, Y3, Y4
	VPXOR     Y3, Y3, Y3
	VPSUBD    Y4, Y3, Y3
	VPMULLD   Y11, Y0, Y4
	VPMOVZXWD (SI), Y5
	VPAND     Y9, Y5, Y6
	VPSRLD    $8, Y5, Y5
	VPMULLD   Y10, Y6, Y6
	VPMULLD   Y10, Y5, Y5
	COLOUR(Y2, R10)
	COLOUR(Y3, R11)
	COLOUR(Y4, R12)
	ADDQ      $16, SI
	ADDQ      $8, R8
	ADDQ      $8, R9
	SUBQ      $16, CX
	JNZ       pixels
	VZEROUPPER
	RET

// EACH writes eight bytes of a colour, whose sums with luma in Y5 are in units of 2^-16.
#define EACH(colour, to) \
	VPADDD       colour, Y5, Y7 \
	VPSRAD       $16, Y7, Y7 \
	VEXTRACTI128 $1, Y7, X0 \
	VPACKSSDW    X0, X7, X7 \
	VPACKUSWB    X7, X7, X7 \
	VMOVQ        X7, (to) \
	ADDQ         $8, to

// func eachY(n int, luma, cb, cr, red, green, blue *uint8)
//
// Registers are those of pairsY, with eight pixels' luma in Y5.
TEXT ·eachY(SB), NOSPLIT, $0-56
	MOVQ n+0(FP), CX
	MOVQ luma+8(FP), SI
	MOVQ cb+16(FP), R8
	MOVQ cr+24(FP), R9
	MOVQ red+32(FP), R10
	MOVQ green+40(FP), R11
	MOVQ blue+48(FP), R12
	FACTOR(0x10101, X10, Y10)
	FACTOR(116130, X11, Y11)
	FACTOR(-46802, X12, Y12)
	FACTOR(-22554, X13, Y13)
	FACTOR(91881, X14, Y14)
	FACTOR(128, X15, Y15)

each:
	VPMOVZXBD (R8), Y0
	VPMOVZXBD (R9), Y1
	VPSUBD    Y15, Y0, Y0
	VPSUBD    Y15, Y1, Y1
	VPMULLD   Y14, Y1, Y2
	VPMULLD   Y13, Y0, Y3
	VPMULLD   Y12, Y1, Y4
	VPADDD    Y4, Y3, Y3
	VPMULLD   Y11, Y0, Y4
	VPMOVZXBD (SI), Y5
	VPMULLD   Y10, Y5, Y5
	EACH(Y2, R10)
	EACH(Y3, R11)
	EACH(Y4, R12)
	ADDQ      $8, SI
	ADDQ      $8, R8
	ADDQ      $8, R9
	SUBQ      $8, CX
	JNZ       each
	VZEROUPPER
	RET

// MIX writes eight samples of a colour, in place: colour is rounded, luma within black and white in Y5 added, that cut off at these, and
// what luma has beyond in Y6 added.
#define MIX(colour, low, to) \
	VPADDD       Y15, colour, colour \
	VPSRAD       $16, colour, colour \
	VPADDD       Y5, colour, colour \
	VPMINSD      Y9, colour, colour \
	VPMAXSD      Y10, colour, colour \
	VPADDD       Y6, colour, colour \
	VEXTRACTI128 $1, colour, X7 \
	VPACKSSDW    X7, low, X7 \
	VMOVDQU      X7, (to) \
	ADDQ         $16, to

// func mixY(n int, red, green, blue *int16)
//
// CX samples left, R10 to R12 the planes; Y0 and Y1 cb and cr, Y2 to Y4 what they add to the colours, Y9 to Y15 constants.
TEXT ·mixY(SB), NOSPLIT, $0-32
	MOVQ n+0(FP), CX
	MOVQ red+8(FP), R10
	MOVQ green+16(FP), R11
	MOVQ blue+24(FP), R12
	FACTOR(127, X9, Y9)
	FACTOR(-128, X10, Y10)
	FACTOR(116130, X11, Y11)
	FACTOR(-46802, X12, Y12)
	FACTOR(-22554, X13, Y13)
	FACTOR(91881, X14, Y14)
	FACTOR(0x8000, X15, Y15)

samples:
	VPMOVSXWD (R10), Y6
	VPMOVSXWD (R11), Y0
	VPMOVSXWD (R12), Y1
	VPMINSD   Y9, Y6, Y5
	VPMAXSD   Y10, Y5, Y5
	VPSUBD    Y5, Y6, Y6
	VPMULLD   Y14, Y1, Y2
	VPMULLD   Y13, Y0, Y3
	VPMULLD   Y12, Y1, Y4
	VPADDD    Y4, Y3, Y3
	VPMULLD   Y11, Y0, Y4
	MIX(Y2, X2, R10)
	MIX(Y3, X3, R11)
	MIX(Y4, X4, R12)
	SUBQ      $8, CX
	JNZ       samples
	VZEROUPPER
	RET
