#include "textflag.h"

// Products of bytes and loops over them for processors without AVX-512: products as words where AVX-VNNI is missing. They give the bits of
// those in dot_amd64.s.

// QUANTA makes Y0, sums or numbers of quanta, whole ones from lo to hi, and adds zero.
#define QUANTA(y, lo, hi, zero) \
	VMAXPS    lo, y, y \
	VMINPS    hi, y, y \
	VCVTPS2DQ y, y \
	VPADDD    zero, y, y

// EIGHT makes the low bytes of Y0's numbers the low half of X0. X1 is lost; mask has the lowest byte of each number.
#define EIGHT(mask) \
	VPAND        mask, Y0, Y0 \
	VEXTRACTI128 $1, Y0, X1 \
	VPACKUSDW    X1, X0, X0 \
	VPACKUSWB    X0, X0, X0

// TERMS adds to two vectors of sums, of four columns each and two for each column, four terms a column: words at Y8 and Y9 times those of
// a filter at SI.
#define TERMS(at, low, high) \
	VPBROADCASTQ at(SI), Y10 \
	VPMADDWD     Y10, Y8, Y11 \
	VPMADDWD     Y10, Y9, Y12 \
	VPADDD       Y11, low, low \
	VPADDD       Y12, high, high

// SUMS writes the sums of eight columns.
#define SUMS(low, high, at) \
	VPHADDD high, low, low \
	VPERMQ  $0xd8, low, low \
	VMOVDQU low, at(SP)

// DOT is VPDPBUSD Y10, Y8, Y(i) in the encoding of AVX-VNNI, which the assembler lacks.
#define DOT(at, i) \
	VPBROADCASTD at(SI), Y10 \
	BYTE $0xc4; BYTE $0xc2; BYTE $0x3d; BYTE $0x50; BYTE $(0xc2+8*i)

// func dotTileY(t *dotTile, words bool)
//
// Four filters and eight columns, of words; eight filters of bytes. AX the tile, CX steps left, SI at a, DI b, BX at the offsets, R10 the
// offset, DX at c, R8 its stride, R11 the starts, R12 filters left, R13 the scales, R14 at the sums, R9 columns; Y0 to Y7 the sums, two
// vectors a filter of words, one of bytes, Y8 and Y9 four numbers of eight columns, Y10 of a filter, Y11 and Y12 products; in the end Y0
// and Y1 are of one filter, Y4 and Y5 the bounds, Y6 the zero point, Y7 the lowest bytes.
TEXT ·dotTileY(SB), NOSPLIT, $256-9
	MOVQ  t+0(FP), AX
	MOVQ  0(AX), CX
	MOVQ  8(AX), SI
	MOVQ  16(AX), DI
	MOVQ  24(AX), BX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	MOVB  words+8(FP), R10
	TESTB R10, R10
	JNZ   step

bytes:
	MOVQ    (BX), R10
	VMOVDQU (DI)(R10*1), Y8
	DOT(0, 0)
	DOT(4, 1)
	DOT(8, 2)
	DOT(12, 3)
	DOT(16, 4)
	DOT(20, 5)
	DOT(24, 6)
	DOT(28, 7)
	ADDQ    $32, SI
	ADDQ    $8, BX
	DECQ    CX
	JNZ     bytes
	VMOVDQU Y0, 0(SP)
	VMOVDQU Y1, 32(SP)
	VMOVDQU Y2, 64(SP)
	VMOVDQU Y3, 96(SP)
	VMOVDQU Y4, 128(SP)
	VMOVDQU Y5, 160(SP)
	VMOVDQU Y6, 192(SP)
	VMOVDQU Y7, 224(SP)
	JMP     summed

step:
	MOVQ      (BX), R10
	VPMOVZXBW (DI)(R10*1), Y8
	VPMOVZXBW 16(DI)(R10*1), Y9
	TERMS(0, Y0, Y1)
	TERMS(8, Y2, Y3)
	TERMS(16, Y4, Y5)
	TERMS(24, Y6, Y7)
	ADDQ      $64, SI
	ADDQ      $8, BX
	DECQ      CX
	JNZ       step
	SUMS(Y0, Y1, 0)
	SUMS(Y2, Y3, 32)
	SUMS(Y4, Y5, 64)
	SUMS(Y6, Y7, 96)

summed:
	MOVQ         32(AX), R11
	MOVQ         40(AX), R13
	MOVQ         48(AX), DX
	MOVQ         56(AX), R8
	MOVQ         64(AX), R12
	MOVL         72(AX), R9
	LEAQ         0(SP), R14
	VBROADCASTSS 76(AX), Y4
	VBROADCASTSS 80(AX), Y5
	VPBROADCASTD 84(AX), Y6
	VPCMPEQD     Y7, Y7, Y7
	VPSRLD       $24, Y7, Y7

filter:
	VPBROADCASTD (R11), Y0
	VPADDD       (R14), Y0, Y0
	TESTQ        R13, R13
	JZ           whole
	VBROADCASTSS (R13), Y1
	VCVTDQ2PS    Y0, Y0
	VMULPS       Y1, Y0, Y0
	QUANTA(Y0, Y4, Y5, Y6)
	EIGHT(Y7)
	ADDQ         $4, R13
	CMPL         R9, $8
	JL           some
	VMOVQ        X0, (DX)
	JMP          next

some:
	// Few columns: byte by byte.
	VMOVQ X0, CX
	XORQ  BX, BX

byte:
	MOVB CX, (DX)(BX*1)
	SHRQ $8, CX
	INCQ BX
	CMPL BX, R9
	JL   byte
	JMP  next

whole:
	VMOVDQU Y0, (R14)
	XORQ    BX, BX

number:
	MOVL (R14)(BX*4), CX
	MOVL CX, (DX)(BX*4)
	INCQ BX
	CMPL BX, R9
	JL   number

next:
	ADDQ $4, R11
	ADDQ $32, R14
	ADDQ R8, DX
	DECQ R12
	JNZ  filter
	VZEROUPPER
	RET

// func quantizeY(n int, dst *byte, src *float32, scale, lo, hi float32, zero int32)
//
// CX elements left, a multiple of 8, DI at dst, SI at src; Y4 the scale, Y5 and Y6 the bounds, Y7 the zero point, Y8 the lowest bytes, Y0
// eight elements.
TEXT ·quantizeY(SB), NOSPLIT, $0-40
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	VBROADCASTSS scale+24(FP), Y4
	VBROADCASTSS lo+28(FP), Y5
	VBROADCASTSS hi+32(FP), Y6
	VBROADCASTSS zero+36(FP), Y7
	VPCMPEQD     Y8, Y8, Y8
	VPSRLD       $24, Y8, Y8

loop:
	VMOVUPS (SI), Y0
	VDIVPS  Y4, Y0, Y0
	QUANTA(Y0, Y5, Y6, Y7)
	EIGHT(Y8)
	VMOVQ   X0, (DI)
	ADDQ    $32, SI
	ADDQ    $8, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// VALUES makes y the float32 of eight bytes less the zero point, times the scale. Flipped they are unsigned.
#define VALUES(from, flip, zero, scale, x, y) \
	VMOVQ     (from), x \
	VPXOR     flip, x, x \
	VPMOVZXBD x, y \
	VPSUBD    zero, y, y \
	VCVTDQ2PS y, y \
	VMULPS    scale, y, y

// func dequantizeY(n int, dst *float32, src *byte, scale float32, zero int32, flip uint32)
//
// CX elements left, a multiple of 8, DI at dst, SI at src; Y4 the scale, Y5 the zero point of flipped bytes, X6 what flips them, Y0 eight
// elements.
TEXT ·dequantizeY(SB), NOSPLIT, $0-36
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	VBROADCASTSS scale+24(FP), Y4
	VBROADCASTSS zero+28(FP), Y5
	VBROADCASTSS flip+32(FP), X6

loop:
	VALUES(SI, X6, Y5, Y4, X0, Y0)
	VMOVUPS Y0, (DI)
	ADDQ    $32, DI
	ADDQ    $8, SI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// func pairedY(t *pairTile)
//
// AX the tile, CX elements left, a multiple of 8, DI at the outputs, SI and R8 at the two sides, R9 whether they are multiplied; Y0 and Y1
// eight of either; X4 what flips them; Y5 and Y6 the zero points of flipped bytes, Y7 and Y8 the scales, Y9 that of the result, Y10 and Y11
// its bounds, Y12 its zero point, Y13 the lowest bytes.
TEXT ·pairedY(SB), NOSPLIT, $0-8
	MOVQ         t+0(FP), AX
	MOVQ         0(AX), CX
	MOVQ         8(AX), DI
	MOVQ         16(AX), SI
	MOVQ         24(AX), R8
	VPBROADCASTD 32(AX), X4
	VPBROADCASTD 36(AX), Y5
	VPBROADCASTD 40(AX), Y6
	VBROADCASTSS 44(AX), Y7
	VBROADCASTSS 48(AX), Y8
	VBROADCASTSS 52(AX), Y9
	VBROADCASTSS 56(AX), Y10
	VBROADCASTSS 60(AX), Y11
	VPBROADCASTD 64(AX), Y12
	MOVL         68(AX), R9
	VPCMPEQD     Y13, Y13, Y13
	VPSRLD       $24, Y13, Y13

loop:
	VALUES(SI, X4, Y5, Y7, X0, Y0)
	VALUES(R8, X4, Y6, Y8, X1, Y1)
	TESTL  R9, R9
	JNZ    product
	VADDPS Y1, Y0, Y0
	JMP    result

product:
	VMULPS Y1, Y0, Y0

result:
	VDIVPS Y9, Y0, Y0
	QUANTA(Y0, Y10, Y11, Y12)
	EIGHT(Y13)
	VMOVQ  X0, (DI)
	ADDQ   $8, SI
	ADDQ   $8, R8
	ADDQ   $8, DI
	SUBQ   $8, CX
	JNZ    loop
	VZEROUPPER
	RET

// func tableY(n int, dst, src, table *byte)
//
// CX elements left, a multiple of 64, DI at dst, SI at src, BX at the table, DX sixteen entries of it; Y0 and Y1 the elements less those of
// the entries before, Y2 and Y3 what the table holds for them, Y4 sixteen entries, Y5 and Y6 which of them, with the highest bit where it is
// none; Y7 has bytes of 0x70, Y8 of 16.
TEXT ·tableY(SB), NOSPLIT, $0-32
	MOVQ     n+0(FP), CX
	MOVQ     dst+8(FP), DI
	MOVQ     src+16(FP), SI
	MOVQ     table+24(FP), BX
	VPCMPEQB Y8, Y8, Y8
	VPABSB   Y8, Y8
	VPSLLW   $4, Y8, Y8
	VPADDB   Y8, Y8, Y7
	VPADDB   Y7, Y8, Y7
	VPADDB   Y7, Y7, Y7
	VPADDB   Y8, Y7, Y7

loop:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VPXOR   Y2, Y2, Y2
	VPXOR   Y3, Y3, Y3
	XORQ    DX, DX

entries:
	VBROADCASTI128 (BX)(DX*1), Y4
	VPADDUSB       Y7, Y0, Y5
	VPADDUSB       Y7, Y1, Y6
	VPSHUFB        Y5, Y4, Y5
	VPSHUFB        Y6, Y4, Y6
	VPOR           Y5, Y2, Y2
	VPOR           Y6, Y3, Y3
	VPSUBB         Y8, Y0, Y0
	VPSUBB         Y8, Y1, Y1
	ADDQ           $16, DX
	CMPQ           DX, $256
	JL             entries
	VMOVDQU        Y2, (DI)
	VMOVDQU        Y3, 32(DI)
	ADDQ           $64, SI
	ADDQ           $64, DI
	SUBQ           $64, CX
	JNZ            loop
	VZEROUPPER
	RET

// PAIR adds two taps of sixteen outputs to the sums: words at one and other times the weights at the address.
#define PAIR(one, other, at) \
	VPXOR        Y8, one, one \
	VPXOR        Y8, other, other \
	VPUNPCKLWD   other, one, Y6 \
	VPUNPCKHWD   other, one, Y7 \
	VPBROADCASTD at(R12)(R9*8), Y15 \
	VPMADDWD     Y15, Y6, Y6 \
	VPMADDWD     Y15, Y7, Y7 \
	VPADDD       Y6, Y0, Y0 \
	VPADDD       Y7, Y1, Y1

// func depthTileY(t *depthTile)
//
// For outputs that read neighbours, or every second. AX the tile, DX lines left, CX outputs of the line left, DI at the outputs, SI at the
// line, R8 at what they read of it, R9 the group of taps, R10 groups, R11 offsets, R12 weights, R13 at a tap, BX from tap to tap, R14 bytes
// of sixteen outputs; Y0 and Y1 sums of 16 outputs, Y2 to Y5 words of four taps, Y6 and Y7 of pairs of them, Y8 what flips them, Y9 the
// start, Y10 the scale, Y11 and Y12 the bounds, Y13 the zero point, Y14 the low byte of each word, Y15 weights.
TEXT ·depthTileY(SB), NOSPLIT, $0-8
	MOVQ         t+0(FP), AX
	MOVQ         0(AX), DX
	MOVQ         16(AX), DI
	MOVQ         24(AX), SI
	MOVQ         40(AX), R14
	MOVQ         48(AX), R10
	MOVQ         56(AX), R11
	MOVQ         64(AX), R12
	MOVQ         96(AX), BX
	VPCMPEQW     Y14, Y14, Y14
	VPSRLW       $8, Y14, Y14
	VPBROADCASTD 72(AX), Y8
	VPAND        Y14, Y8, Y8
	VPBROADCASTD 76(AX), Y9
	VBROADCASTSS 80(AX), Y10
	VBROADCASTSS 84(AX), Y11
	VBROADCASTSS 88(AX), Y12
	VPBROADCASTD 92(AX), Y13

line:
	MOVQ 8(AX), CX
	MOVQ SI, R8

outputs:
	VMOVDQA Y9, Y0
	VMOVDQA Y9, Y1
	XORQ    R9, R9

group:
	MOVQ      (R11)(R9*8), R13
	ADDQ      R8, R13
	CMPQ      R14, $16
	JNE       second
	VPMOVZXBW (R13), Y2
	ADDQ      BX, R13
	VPMOVZXBW (R13), Y3
	ADDQ      BX, R13
	VPMOVZXBW (R13), Y4
	ADDQ      BX, R13
	VPMOVZXBW (R13), Y5
	JMP       taps

second:
	VPAND (R13), Y14, Y2
	ADDQ  BX, R13
	VPAND (R13), Y14, Y3
	ADDQ  BX, R13
	VPAND (R13), Y14, Y4
	ADDQ  BX, R13
	VPAND (R13), Y14, Y5

taps:
	PAIR(Y2, Y3, 0)
	PAIR(Y4, Y5, 4)
	INCQ         R9
	CMPQ         R9, R10
	JL           group
	VCVTDQ2PS    Y0, Y0
	VCVTDQ2PS    Y1, Y1
	VMULPS       Y10, Y0, Y0
	VMULPS       Y10, Y1, Y1
	QUANTA(Y0, Y11, Y12, Y13)
	QUANTA(Y1, Y11, Y12, Y13)
	VPSRLD       $16, Y14, Y15
	VPAND        Y15, Y0, Y0
	VPAND        Y15, Y1, Y1
	VPACKUSDW    Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKUSWB    X1, X0, X0
	ADDQ         R14, R8
	CMPQ         CX, $16
	JL           eight
	VMOVDQU      X0, (DI)
	ADDQ         $16, DI
	SUBQ         $16, CX
	JNZ          outputs
	JMP          lined

eight:
	TESTQ   $8, CX
	JZ      four
	VMOVQ   X0, (DI)
	VPSRLDQ $8, X0, X0
	ADDQ    $8, DI

four:
	TESTQ   $4, CX
	JZ      two
	VMOVD   X0, (DI)
	VPSRLDQ $4, X0, X0
	ADDQ    $4, DI

two:
	TESTQ   $2, CX
	JZ      one
	VPEXTRW $0, X0, (DI)
	VPSRLDQ $2, X0, X0
	ADDQ    $2, DI

one:
	TESTQ   $1, CX
	JZ      lined
	VPEXTRB $0, X0, (DI)
	INCQ    DI

lined:
	ADDQ 32(AX), SI
	DECQ DX
	JNZ  line
	VZEROUPPER
	RET
