#include "textflag.h"

// DOTS1, DOTS2 and DOTS3 add four terms to the sums of a filter, in 16, 32 or 48 columns: the bytes of b at Z24 to Z26, unsigned, times
// those of a at SI, signed. Z27 is of their own.
#define DOTS1(at, low) \
	VPBROADCASTD at(SI), Z27 \
	VPDPBUSD     Z27, Z24, low

#define DOTS2(at, low, middle) \
	DOTS1(at, low) \
	VPDPBUSD Z27, Z25, middle

#define DOTS3(at, low, middle, high) \
	DOTS2(at, low, middle) \
	VPDPBUSD Z27, Z26, high

// DOTS48 adds four terms to all sums of eight filters in 48 columns.
#define DOTS48 \
	VMOVDQU32  (DI)(R10*1), Z24 \
	VMOVDQU32  64(DI)(R10*1), Z25 \
	VMOVDQU32  128(DI)(R10*1), Z26 \
	PREFETCHT0 4096(SI) \
	DOTS3(0, Z0, Z1, Z2) \
	DOTS3(4, Z3, Z4, Z5) \
	DOTS3(8, Z6, Z7, Z8) \
	DOTS3(12, Z9, Z10, Z11) \
	DOTS3(16, Z12, Z13, Z14) \
	DOTS3(20, Z15, Z16, Z17) \
	DOTS3(24, Z18, Z19, Z20) \
	DOTS3(28, Z21, Z22, Z23) \
	ADDQ       $32, SI \
	ADDQ       $8, BX \
	DECQ       CX

// ASBYTES writes 16 sums as bytes at the address: times their scales, from Z29 to Z30, and with the zero point Z31 added. Columns that the
// mask lacks are left out.
#define ASBYTES(sums, scales, mask, address) \
	VCVTDQ2PS sums, sums \
	VMULPS    scales, sums, sums \
	VMAXPS    Z29, sums, sums \
	VMINPS    Z30, sums, sums \
	VCVTPS2DQ sums, sums \
	VPADDD    Z31, sums, sums \
	VPMOVDB   sums, mask, address

// NEXTFILTER goes on to the next filter unless it was the last of R12.
#define NEXTFILTER \
	ADDQ R8, DX \
	DECQ R12 \
	JZ   end

// QUANTIZED2 and QUANTIZED3 write a filter's sums as bytes, WHOLE2 and WHOLE3 as they are.
#define QUANTIZED2(low, high, at) \
	VBROADCASTSS at(R13), Z27 \
	ASBYTES(low, Z27, K1, (DX)) \
	ASBYTES(high, Z27, K2, 16(DX)) \
	NEXTFILTER

#define QUANTIZED3(low, middle, high, at) \
	VBROADCASTSS at(R13), Z27 \
	ASBYTES(low, Z27, K1, (DX)) \
	ASBYTES(middle, Z27, K2, 16(DX)) \
	ASBYTES(high, Z27, K3, 32(DX)) \
	NEXTFILTER

#define WHOLE3(low, middle, high) \
	VMOVDQU32 low, K1, (DX) \
	VMOVDQU32 middle, K2, 64(DX) \
	VMOVDQU32 high, K3, 128(DX) \
	NEXTFILTER

// FILTER is where a filter's sums start from.
#define FILTER(at, low, middle, high) \
	VPBROADCASTD at(R11), low \
	VMOVDQA32    low, middle \
	VMOVDQA32    low, high

// func dotTileZ(t *dotTile)
//
// All columns, 48 or 49 at once, and of these all filters, a panel at once. AX the tile, where b, c, columns and tiles of 49 are counted on; CX
// steps left, SI at a, DI b, BX at the offsets, R10 the offset, R9 the columns left, DX at c, R8 its stride, R11 the starts, R12 filters
// left, R13 the scales; K1 to K3 the wanted columns; Z0 to Z23 the sums, three for each filter, Z24 to Z26 four bytes of 48 columns, Z27 of a filter,
// Y28 the last column's sums of eight filters; in the end Z27 is the scale, Z29 and Z30 the bounds, Z31 the zero point.
TEXT ·dotTileZ(SB), NOSPLIT, $0-8
	MOVQ         t+0(FP), AX
	MOVQ         56(AX), R8
	VBROADCASTSS 76(AX), Z29
	VBROADCASTSS 80(AX), Z30
	VPBROADCASTD 84(AX), Z31

columns:
	MOVQ $-1, R10
	MOVL 72(AX), R9
	MOVL R9, CX
	CMPL CX, $48
	JGE  every
	MOVQ $1, R10
	SHLQ CX, R10
	DECQ R10

every:
	KMOVW R10, K1
	SHRQ  $16, R10
	KMOVW R10, K2
	SHRQ  $16, R10
	KMOVW R10, K3
	MOVQ  8(AX), SI
	MOVQ  16(AX), DI
	MOVQ  32(AX), R11
	MOVQ  40(AX), R13
	MOVQ  48(AX), DX
	MOVQ  64(AX), R12

panel:
	MOVQ      0(AX), CX
	MOVQ      24(AX), BX
	FILTER(0, Z0, Z1, Z2)
	FILTER(4, Z3, Z4, Z5)
	FILTER(8, Z6, Z7, Z8)
	FILTER(12, Z9, Z10, Z11)
	FILTER(16, Z12, Z13, Z14)
	FILTER(20, Z15, Z16, Z17)
	FILTER(24, Z18, Z19, Z20)
	FILTER(28, Z21, Z22, Z23)
	VMOVDQU32 (R11), Y28
	ADDQ      $32, R11
	CMPL      88(AX), $0
	JNE       longer
	CMPL      R9, $16
	JLE       one
	CMPL      R9, $32
	JLE       two
	PCALIGN   $64

three:
	MOVQ  (BX), R10
	DOTS48
	JNZ   three
	TESTQ R13, R13
	JZ    whole

bytes3:
	QUANTIZED3(Z0, Z1, Z2, 0)
	QUANTIZED3(Z3, Z4, Z5, 4)
	QUANTIZED3(Z6, Z7, Z8, 8)
	QUANTIZED3(Z9, Z10, Z11, 12)
	QUANTIZED3(Z12, Z13, Z14, 16)
	QUANTIZED3(Z15, Z16, Z17, 20)
	QUANTIZED3(Z18, Z19, Z20, 24)
	QUANTIZED3(Z21, Z22, Z23, 28)
	ADDQ $32, R13
	JMP  panel

longer:
	MOVQ         (BX), R10
	VPBROADCASTD 192(DI)(R10*1), Y27
	VPDPBUSD     (SI), Y27, Y28
	DOTS48
	JNZ          longer
	VCVTDQ2PS    Y28, Y28
	VMULPS       (R13), Y28, Y28
	VMAXPS       Y29, Y28, Y28
	VMINPS       Y30, Y28, Y28
	VCVTPS2DQ    Y28, Y28
	VPADDD       Y31, Y28, Y28
	VPMOVDB      Y28, X28
	VMOVQ        X28, R10
	LEAQ         48(DX), BX
	MOVL         $8, CX
	CMPQ         R12, CX
	CMOVQLT      R12, CX

last:
	MOVB R10, (BX)
	SHRQ $8, R10
	ADDQ R8, BX
	DECQ CX
	JNZ  last
	JMP  bytes3

two:
	MOVQ       (BX), R10
	VMOVDQU32  (DI)(R10*1), Z24
	VMOVDQU32  64(DI)(R10*1), Z25
	PREFETCHT0 4096(SI)
	DOTS2(0, Z0, Z1)
	DOTS2(4, Z3, Z4)
	DOTS2(8, Z6, Z7)
	DOTS2(12, Z9, Z10)
	DOTS2(16, Z12, Z13)
	DOTS2(20, Z15, Z16)
	DOTS2(24, Z18, Z19)
	DOTS2(28, Z21, Z22)
	ADDQ       $32, SI
	ADDQ       $8, BX
	DECQ       CX
	JNZ        two
	JMP        ready

one:
	MOVQ      (BX), R10
	VMOVDQU32 (DI)(R10*1), Z24
	DOTS1(0, Z0)
	DOTS1(4, Z3)
	DOTS1(8, Z6)
	DOTS1(12, Z9)
	DOTS1(16, Z12)
	DOTS1(20, Z15)
	DOTS1(24, Z18)
	DOTS1(28, Z21)
	ADDQ      $32, SI
	ADDQ      $8, BX
	DECQ      CX
	JNZ       one

ready:
	TESTQ R13, R13
	JZ    whole
	QUANTIZED2(Z0, Z1, 0)
	QUANTIZED2(Z3, Z4, 4)
	QUANTIZED2(Z6, Z7, 8)
	QUANTIZED2(Z9, Z10, 12)
	QUANTIZED2(Z12, Z13, 16)
	QUANTIZED2(Z15, Z16, 20)
	QUANTIZED2(Z18, Z19, 24)
	QUANTIZED2(Z21, Z22, 28)
	ADDQ  $32, R13
	JMP   panel

whole:
	WHOLE3(Z0, Z1, Z2)
	WHOLE3(Z3, Z4, Z5)
	WHOLE3(Z6, Z7, Z8)
	WHOLE3(Z9, Z10, Z11)
	WHOLE3(Z12, Z13, Z14)
	WHOLE3(Z15, Z16, Z17)
	WHOLE3(Z18, Z19, Z20)
	WHOLE3(Z21, Z22, Z23)
	JMP   panel

end:
	MOVL  $48, R9
	CMPL  88(AX), $0
	JEQ   next
	MOVL  $49, R9
	DECL  88(AX)

next:
	SUBL  R9, 72(AX)
	LEAQ  (R9*4), R10
	ADDQ  R10, 16(AX)
	TESTQ R13, R13
	CMOVQEQ R10, R9
	ADDQ  R9, 48(AX)
	CMPL  72(AX), $0
	JG    columns
	VZEROUPPER
	RET

// ROW adds four terms to a row's sums of 32 columns: bytes of the row, unsigned, times those at Z16 and Z17, signed.
#define ROW(from, low, high) \
	VPBROADCASTD from, Z18 \
	VPDPBUSD     Z16, Z18, low \
	VPDPBUSD     Z17, Z18, high

// ROWQUANTIZED writes a row's sums as bytes at DX, and goes on to the next unless it was the last of R9.
#define ROWQUANTIZED(low, high) \
	ASBYTES(low, Z23, K1, (DX)) \
	ASBYTES(high, Z24, K2, 16(DX)) \
	ADDQ R8, DX \
	DECQ      R9 \
	JZ        grouped

#define ROWWHOLE(low, high) \
	VMOVDQU32 low, K1, (DX) \
	VMOVDQU32 high, K2, 64(DX) \
	ADDQ      R8, DX \
	DECQ      R9 \
	JZ        grouped

// func dotRowsZ(t *rowTile)
//
// AX the tile, R12 groups of eight rows left, R14 at the first of them, R10 bytes from row to row, R13 of three rows; CX steps left, SI
// at a, DI, R11 and BX at rows 0, 3 and 6; DX at c, R8 its stride, R9 rows left to write; K1 and K2 the wanted columns; Z0 to Z15 the sums,
// two for each row, Z16 and Z17 weights of 32 columns, Z18 bytes of a row; Z29 and Z30 the bounds, Z31 the zero point, Z23 and Z24 the
// scales, Z25 and Z26 the starts.
TEXT ·dotRowsZ(SB), NOSPLIT, $0-8
	MOVQ         t+0(FP), AX
	MOVQ         8(AX), R12
	MOVQ         24(AX), R14
	MOVQ         32(AX), R10
	LEAQ         (R10)(R10*2), R13
	MOVQ         40(AX), SI
	MOVQ         56(AX), DX
	MOVQ         64(AX), R8
	MOVL         80(AX), R9
	KMOVW        R9, K1
	SHRL         $16, R9
	KMOVW        R9, K2
	VBROADCASTSS 84(AX), Z29
	VBROADCASTSS 88(AX), Z30
	VPBROADCASTD 92(AX), Z31
	VMOVDQU32    (SI), Z25
	VMOVDQU32    64(SI), Z26
	MOVQ         48(AX), SI
	TESTQ        SI, SI
	JZ           group
	VMOVUPS      (SI), Z23
	VMOVUPS      64(SI), Z24

group:
	MOVQ      0(AX), CX
	MOVQ      16(AX), SI
	MOVQ      R14, DI
	LEAQ      (DI)(R13*1), R11
	LEAQ      (R11)(R13*1), BX
	VMOVDQA32 Z25, Z0
	VMOVDQA32 Z26, Z1
	VMOVDQA32 Z25, Z2
	VMOVDQA32 Z26, Z3
	VMOVDQA32 Z25, Z4
	VMOVDQA32 Z26, Z5
	VMOVDQA32 Z25, Z6
	VMOVDQA32 Z26, Z7
	VMOVDQA32 Z25, Z8
	VMOVDQA32 Z26, Z9
	VMOVDQA32 Z25, Z10
	VMOVDQA32 Z26, Z11
	VMOVDQA32 Z25, Z12
	VMOVDQA32 Z26, Z13
	VMOVDQA32 Z25, Z14
	VMOVDQA32 Z26, Z15

step:
	VMOVDQU32 (SI), Z16
	VMOVDQU32 64(SI), Z17
	ROW((DI), Z0, Z1)
	ROW((DI)(R10*1), Z2, Z3)
	ROW((DI)(R10*2), Z4, Z5)
	ROW((R11), Z6, Z7)
	ROW((DI)(R10*4), Z8, Z9)
	ROW((R11)(R10*2), Z10, Z11)
	ROW((BX), Z12, Z13)
	ROW((BX)(R10*1), Z14, Z15)
	ADDQ      $128, SI
	ADDQ      $4, DI
	ADDQ      $4, R11
	ADDQ      $4, BX
	DECQ      CX
	JNZ       step
	MOVQ      72(AX), R9
	CMPQ      48(AX), $0
	JEQ       whole
	ROWQUANTIZED(Z0, Z1)
	ROWQUANTIZED(Z2, Z3)
	ROWQUANTIZED(Z4, Z5)
	ROWQUANTIZED(Z6, Z7)
	ROWQUANTIZED(Z8, Z9)
	ROWQUANTIZED(Z10, Z11)
	ROWQUANTIZED(Z12, Z13)
	ROWQUANTIZED(Z14, Z15)

whole:
	ROWWHOLE(Z0, Z1)
	ROWWHOLE(Z2, Z3)
	ROWWHOLE(Z4, Z5)
	ROWWHOLE(Z6, Z7)
	ROWWHOLE(Z8, Z9)
	ROWWHOLE(Z10, Z11)
	ROWWHOLE(Z12, Z13)
	ROWWHOLE(Z14, Z15)

grouped:
	LEAQ (R14)(R10*8), R14
	DECQ R12
	JNZ  group
	VZEROUPPER
	RET

// func interleaveX(n int, dst, a, b, c, d *byte, flip uint32)
//
// CX elements left, a multiple of 16; DI at dst, SI, R8, R9 and R10 at the four rows; X5 what is added to each byte without a carry; X0
// to X3 sixteen bytes of the rows, X4, X6 and X7 their pairs.
TEXT ·interleaveX(SB), NOSPLIT, $0-52
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         a+16(FP), SI
	MOVQ         b+24(FP), R8
	MOVQ         c+32(FP), R9
	MOVQ         d+40(FP), R10
	VBROADCASTSS flip+48(FP), X5

loop:
	VPXOR      (SI), X5, X0
	VPXOR      (R8), X5, X1
	VPXOR      (R9), X5, X2
	VPXOR      (R10), X5, X3
	VPUNPCKLBW X1, X0, X4
	VPUNPCKHBW X1, X0, X0
	VPUNPCKLBW X3, X2, X6
	VPUNPCKHBW X3, X2, X2
	VPUNPCKLWD X6, X4, X7
	VPUNPCKHWD X6, X4, X4
	VPUNPCKLWD X2, X0, X6
	VPUNPCKHWD X2, X0, X0
	VMOVDQU    X7, (DI)
	VMOVDQU    X4, 16(DI)
	VMOVDQU    X6, 32(DI)
	VMOVDQU    X0, 48(DI)
	ADDQ       $64, DI
	ADDQ       $16, SI
	ADDQ       $16, R8
	ADDQ       $16, R9
	ADDQ       $16, R10
	SUBQ       $16, CX
	JNZ        loop
	RET

// func linesZ(lines, n int, dst, src *byte, to, from, taps int, offsets *int, step int)
//
// R11 taps left, R12 at their offsets; DX lines left, R8 bytes of a line, DI and SI at the lines, R9 and R10 from line to line; CX bytes left,
// BX those before, K1 which of a vector's there are.
TEXT ·linesZ(SB), NOSPLIT, $0-72
	MOVQ taps+48(FP), R11
	MOVQ offsets+56(FP), R12

tap:
	MOVQ lines+0(FP), DX
	MOVQ n+8(FP), R8
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	MOVQ to+32(FP), R9
	MOVQ from+40(FP), R10
	ADDQ (R12), SI

line:
	XORQ BX, BX
	MOVQ R8, CX

more:
	MOVQ $-1, AX
	CMPQ CX, $64
	JGE  some
	MOVQ $1, AX
	SHLQ CX, AX
	DECQ AX

some:
	KMOVQ      AX, K1
	VMOVDQU8.Z (SI)(BX*1), K1, Z0
	VMOVDQU8   Z0, K1, (DI)(BX*1)
	ADDQ       $64, BX
	SUBQ       $64, CX
	JG         more
	ADDQ       R9, DI
	ADDQ       R10, SI
	DECQ       DX
	JNZ        line
	MOVQ       step+64(FP), AX
	ADDQ       AX, dst+16(FP)
	ADDQ       $8, R12
	DECQ       R11
	JNZ        tap
	VZEROUPPER
	RET

// BITS makes k the lowest bits, as many as CX says, of 64 at most.
#define BITS(k) \
	MOVQ    $64, R14 \
	CMPQ    CX, R14 \
	CMOVQGT R14, CX \
	MOVQ    $0, R13 \
	CMPQ    CX, R13 \
	CMOVQLT R13, CX \
	MOVQ    $-1, AX \
	BZHIQ   CX, AX, AX \
	KMOVQ   AX, k

// func byTurnsZ(h *byTurns, even, odd, src *byte)
//
// DX lines left, R8 and R9 bytes for either half, R10 and R11 from line to line; SI, DI and BX at the source, the even and the odd ones, R12
// bytes of either before; CX and AX counts and masks, K1 of the source, K2 and K3 of the halves; Z0 32 pairs.
TEXT ·byTurnsZ(SB), NOSPLIT, $0-32
	MOVQ h+0(FP), AX
	MOVQ even+8(FP), DI
	MOVQ odd+16(FP), BX
	MOVQ src+24(FP), SI
	MOVQ 0(AX), DX
	MOVQ 8(AX), R8
	MOVQ 16(AX), R9
	MOVQ 24(AX), R10
	MOVQ 32(AX), R11

line:
	XORQ R12, R12

pairs:
	MOVQ       R8, CX
	SUBQ       R12, CX
	BITS(K2)
	LEAQ       -1(CX)(CX*1), R15
	MOVQ       R9, CX
	SUBQ       R12, CX
	BITS(K3)
	LEAQ       (CX)(CX*1), CX
	CMPQ       CX, R15
	CMOVQLT    R15, CX
	BITS(K1)
	VMOVDQU8.Z (SI)(R12*2), K1, Z0
	VPMOVWB    Z0, K2, (DI)(R12*1)
	VPSRLW     $8, Z0, Z0
	VPMOVWB    Z0, K3, (BX)(R12*1)
	ADDQ       $32, R12
	CMPQ       R12, R8
	JLT        pairs
	CMPQ       R12, R9
	JLT        pairs
	ADDQ       R11, SI
	ADDQ       R10, DI
	ADDQ       R10, BX
	DECQ       DX
	JNZ        line
	VZEROUPPER
	RET

// LOADED sets to to the float32 of sixteen bytes less the zero point. Flipped by flip and less 128 where they are signed, they are
// unsigned before.
#define LOADED(from, flip, zero, scale, to) \
	VMOVDQU8.Z (from), K1, X8 \
	VPXORD     flip, X8, X8 \
	VPMOVZXBD  X8, to \
	VPSUBD     zero, to, to \
	VCVTDQ2PS  to, to \
	VMULPS     scale, to, to

// BYTES counts CX down to the elements that are left, with their mask in K1.
#define BYTES \
	CMPQ  CX, $16 \
	JGE   some \
	MOVL  $1, AX \
	SHLL  CX, AX \
	DECL  AX \
	KMOVW AX, K1

// func dequantizeZ(n int, dst *float32, src *byte, scale float32, zero int32, flip uint32)
//
// CX elements left, DI at dst, SI at src, K1 the elements of a vector; Z4 the scale, Z5 the zero point of flipped bytes, X6 what flips
// them, Z0 and X8 sixteen elements.
TEXT ·dequantizeZ(SB), NOSPLIT, $0-36
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	VBROADCASTSS scale+24(FP), Z4
	VBROADCASTSS zero+28(FP), Z5
	VBROADCASTSS flip+32(FP), X6
	MOVL         $0xffff, AX
	KMOVW        AX, K1

loop:
	BYTES
some:
	LOADED(SI, X6, Z5, Z4, Z0)
	VMOVUPS      Z0, K1, (DI)
	ADDQ         $64, DI
	ADDQ         $16, SI
	SUBQ         $16, CX
	JG           loop
	VZEROUPPER
	RET

// func quantizeZ(n int, dst *byte, src *float32, scale, lo, hi float32, zero int32)
//
// CX elements left, DI at dst, SI at src, K1 the elements of a vector; Z4 the scale, Z5 and Z6 the bounds, Z7 the zero point, Z0 sixteen
// elements.
TEXT ·quantizeZ(SB), NOSPLIT, $0-40
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	VBROADCASTSS scale+24(FP), Z4
	VBROADCASTSS lo+28(FP), Z5
	VBROADCASTSS hi+32(FP), Z6
	VBROADCASTSS zero+36(FP), Z7
	MOVL         $0xffff, AX
	KMOVW        AX, K1

loop:
	BYTES
some:
	VMOVUPS.Z (SI), K1, Z0
	VDIVPS    Z4, Z0, Z0
	VMAXPS    Z5, Z0, Z0
	VMINPS    Z6, Z0, Z0
	VCVTPS2DQ Z0, Z0
	VPADDD    Z7, Z0, Z0
	VPMOVDB   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $16, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func depthTileZ(t *stripsTile)
//
// AX the tile, where planes, their addresses, starts and scales are counted on; R12 the plane's weights, R10 groups of taps, R11 their
// offsets; BX the strip, CX strips left. First SI is at a line of the plane, DI at its vectors, DX lines left, R13 the first vector, R8 what
// it reads, R9 vectors of a line left. Then SI is at the vectors of a line of outputs, DI at these, DX lines left, R9 the group, R13 its
// offset. K2 the bytes of a line, K1 those that are no padding, K3 the outputs; Z0 sums of 16 outputs, Z1 bytes of a line, Z2 those of four
// taps of each output, Z3 which those are, Z4 what flips them, Z5 the start, Z6 the scale, Z7 and Z8 the bounds, Z9 the zero point, Z10 padding.
TEXT ·depthTileZ(SB), NOSPLIT, $0-8
	MOVQ         t+0(FP), AX
	MOVQ         56(AX), R10
	MOVQ         64(AX), R12
	MOVQ         112(AX), R11
	VPBROADCASTD 160(AX), Z4
	VPBROADCASTD 164(AX), Z10
	VBROADCASTSS 168(AX), Z7
	VBROADCASTSS 172(AX), Z8
	VPBROADCASTD 176(AX), Z9

plane:
	MOVQ         40(AX), BX
	MOVQ         48(AX), CX
	MOVQ         72(AX), R8
	VPBROADCASTD (R8), Z5
	MOVQ         80(AX), R8
	VBROADCASTSS (R8), Z6

strip:
	KMOVQ 16(BX), K2
	KMOVQ 24(BX), K3
	MOVQ  32(BX), R8
	MOVQ  88(AX), R13
	MOVQ  152(AX), R9
	MOVQ  96(AX), R14

four:
	KMOVQ    (R8), K1
	VMOVDQU8 8(R8), Z3
	MOVQ     0(BX), SI
	ADDQ     16(AX), SI
	MOVQ     R13, DI
	MOVQ     104(AX), DX
	MOVQ     152(AX), R15
	SHLQ     $6, R15

read:
	VMOVDQU8.Z (SI), K2, Z1
	VMOVDQA64  Z10, Z2
	VPERMB     Z1, Z3, K1, Z2
	VPXORD     Z4, Z2, Z2
	VMOVDQA64  Z2, (DI)
	ADDQ       R14, SI
	ADDQ       R15, DI
	DECQ       DX
	JNZ        read
	ADDQ       $72, R8
	ADDQ       $64, R13
	DECQ       R9
	JNZ        four
	MOVQ       120(AX), SI
	MOVQ       8(BX), DI
	ADDQ       8(AX), DI
	MOVQ       128(AX), DX
	MOVQ       136(AX), R14
	MOVQ       144(AX), R15

line:
	VMOVDQA32 Z5, Z0
	XORQ      R9, R9
	PCALIGN   $64 // else the loop takes up to 15% longer

group:
	MOVQ          (R11)(R9*8), R13
	VMOVDQA64     (SI)(R13*1), Z2
	VPDPBUSD.BCST (R12)(R9*4), Z2, Z0
	INCQ          R9
	CMPQ          R9, R10
	JL            group
	VCVTDQ2PS     Z0, Z0
	VMULPS        Z6, Z0, Z0
	VMAXPS        Z7, Z0, Z0
	VMINPS        Z8, Z0, Z0
	VCVTPS2DQ     Z0, Z0
	VPADDD        Z9, Z0, Z0
	VPMOVDB       Z0, K3, (DI)
	ADDQ          R14, SI
	ADDQ          R15, DI
	DECQ          DX
	JNZ           line
	ADDQ          $40, BX
	DECQ          CX
	JNZ           strip
	LEAQ          (R12)(R10*4), R12
	MOVQ          24(AX), R8
	ADDQ          R8, 8(AX)
	MOVQ          32(AX), R8
	ADDQ          R8, 16(AX)
	ADDQ          $32, 72(AX)
	ADDQ          $32, 80(AX)
	DECQ          0(AX)
	JNZ           plane
	VZEROUPPER
	RET

// UNSIGNED sets to to the float32 of sixteen bytes less the zero point, as LOADED does.
#define UNSIGNED(from, flip, zero, scale, to) \
	VPMOVZXBD (from), to \
	VPXORD    flip, to, to \
	VPSUBD    zero, to, to \
	VCVTDQ2PS to, to \
	VMULPS    scale, to, to

// func pairedZ(t *pairTile)
//
// AX the tile, CX elements left, 16 at least at first, DI at the outputs, SI and R8 at the two sides, R9 whether they are multiplied; Z0 and
// Z1 sixteen of either; Z4 what flips them; Z9 and Z10 the zero points of flipped bytes, Z11 and Z12 the scales, Z13 that of the result,
// Z14 and Z15 its bounds, Z16 its zero point.
TEXT ·pairedZ(SB), NOSPLIT, $0-8
	MOVQ         t+0(FP), AX
	MOVQ         0(AX), CX
	MOVQ         8(AX), DI
	MOVQ         16(AX), SI
	MOVQ         24(AX), R8
	VPBROADCASTD 32(AX), Z4
	VPSRLD       $24, Z4, Z4
	VPBROADCASTD 36(AX), Z9
	VPBROADCASTD 40(AX), Z10
	VBROADCASTSS 44(AX), Z11
	VBROADCASTSS 48(AX), Z12
	VBROADCASTSS 52(AX), Z13
	VBROADCASTSS 56(AX), Z14
	VBROADCASTSS 60(AX), Z15
	VPBROADCASTD 64(AX), Z16
	MOVL         68(AX), R9

loop:
	UNSIGNED(SI, Z4, Z9, Z11, Z0)
	UNSIGNED(R8, Z4, Z10, Z12, Z1)
	TESTL  R9, R9
	JNZ    product
	VADDPS Z1, Z0, Z0
	JMP    result

product:
	VMULPS Z1, Z0, Z0

result:
	VDIVPS    Z13, Z0, Z0
	VMAXPS    Z14, Z0, Z0
	VMINPS    Z15, Z0, Z0
	VCVTPS2DQ Z0, Z0
	VPADDD    Z16, Z0, Z0
	VPMOVDB   Z0, X0
	VMOVDQU   X0, (DI)
	ADDQ      $16, SI
	ADDQ      $16, R8
	ADDQ      $16, DI
	SUBQ      $16, CX
	CMPQ      CX, $16
	JGE       loop
	TESTQ     CX, CX
	JZ        end
	LEAQ      -16(CX), BX // the last sixteen, some of them again
	ADDQ      BX, SI
	ADDQ      BX, R8
	ADDQ      BX, DI
	MOVQ      $16, CX
	JMP       loop

end:
	VZEROUPPER
	RET

// func tableZ(n int, dst, src, table *byte)
//
// CX elements left, DI at dst, SI at src, K1 the elements of a vector; Z4 to Z7 the table, Z0 the elements, Z1 and Z2 what the halves of
// the table hold for them, K2 those of the upper half.
TEXT ·tableZ(SB), NOSPLIT, $0-32
	MOVQ     n+0(FP), CX
	MOVQ     dst+8(FP), DI
	MOVQ     src+16(FP), SI
	MOVQ     table+24(FP), BX
	VMOVDQU8 (BX), Z4
	VMOVDQU8 64(BX), Z5
	VMOVDQU8 128(BX), Z6
	VMOVDQU8 192(BX), Z7
	MOVQ     $-1, AX
	KMOVQ    AX, K1

loop:
	CMPQ  CX, $64
	JGE   some
	MOVQ  $1, AX
	SHLQ  CX, AX
	DECQ  AX
	KMOVQ AX, K1

some:
	VMOVDQU8.Z (SI), K1, Z0
	VPMOVB2M   Z0, K2
	VMOVDQA64  Z0, Z1
	VMOVDQA64  Z0, Z2
	VPERMI2B   Z5, Z4, Z1
	VPERMI2B   Z7, Z6, Z2
	VMOVDQU8   Z2, K2, Z1
	VMOVDQU8   Z1, K1, (DI)
	ADDQ       $64, SI
	ADDQ       $64, DI
	SUBQ       $64, CX
	JG         loop
	VZEROUPPER
	RET

// func maximaY(taps, n int, dst, src *byte, offsets *int, flip uint32)
//
// R8 taps, DX elements left, a multiple of 32, DI at dst, SI at src, R9 offsets, CX the tap, AX its offset; Y1 what flips signed bytes, Y0
// the largest of 32 outputs, flipped, Y2 a tap's.
TEXT ·maximaY(SB), NOSPLIT, $0-44
	MOVQ         taps+0(FP), R8
	MOVQ         n+8(FP), DX
	MOVQ         dst+16(FP), DI
	MOVQ         src+24(FP), SI
	MOVQ         offsets+32(FP), R9
	VBROADCASTSS flip+40(FP), Y1

run:
	MOVQ  (R9), AX
	VPXOR (SI)(AX*1), Y1, Y0
	MOVQ  $1, CX
	JMP   more

tap:
	MOVQ   (R9)(CX*8), AX
	VPXOR  (SI)(AX*1), Y1, Y2
	VPMAXUB Y2, Y0, Y0
	INCQ   CX

more:
	CMPQ    CX, R8
	JL      tap
	VPXOR   Y1, Y0, Y0
	VMOVDQU Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $32, DX
	JNZ     run
	VZEROUPPER
	RET

// func splitBytesX(n int, even, odd, src *byte)
//
// CX pairs left, a multiple of 16, DI at even, BX at odd, SI at src; X4 the low byte of each of eight words, X0 and X1 sixteen pairs, X2
// and X3 their first bytes.
TEXT ·splitBytesX(SB), NOSPLIT, $0-32
	MOVQ     n+0(FP), CX
	MOVQ     even+8(FP), DI
	MOVQ     odd+16(FP), BX
	MOVQ     src+24(FP), SI
	VPCMPEQW X4, X4, X4
	VPSRLW   $8, X4, X4

loop:
	VMOVDQU   (SI), X0
	VMOVDQU   16(SI), X1
	VPAND     X4, X0, X2
	VPAND     X4, X1, X3
	VPSRLW    $8, X0, X0
	VPSRLW    $8, X1, X1
	VPACKUSWB X3, X2, X2
	VPACKUSWB X1, X0, X0
	VMOVDQU   X2, (DI)
	VMOVDQU   X0, (BX)
	ADDQ      $32, SI
	ADDQ      $16, DI
	ADDQ      $16, BX
	SUBQ      $16, CX
	JNZ       loop
	RET
