#include "textflag.h"

// Tiles of c stay in registers while a, [k, 8], and b, whose rows lie bs apart, are read once; k is at least 1. Sums go on from c, or
// begin anew at the numbers from, one a row, where that is not nil. In vectors of sixteen they go on from start, whose rows lie down apart:
// that is c, one row for all, or nil; where from is not nil either, they begin at both. Where limits is not nil, the sums are bounded by
// both.

// FUSED adds a product without rounding it. ZSTEPS and YSTEPS round it, in Z20 and Y12.
#define FUSED(x, y, to) VFMADD231PS x, y, to

#define ZSTEPS(x, y, to) \
	VMULPS x, y, Z20 \
	VADDPS Z20, to, to

#define YSTEPS(x, y, to) \
	VMULPS x, y, Y12 \
	VADDPS Y12, to, to

// AHEAD is how many bytes before its use a panel of a is fetched: of one image weights are read once, and most of them lie in memory.
#define AHEAD 2048

// FARTHER is how many bytes before its use a row of b is fetched where rows lie one behind the other and sums do not begin by row: then b
// is known weights, as AHEAD has a.
#define FARTHER 4096

// COLUMNS is how many bytes behind a row's place the row of the next 32 columns of b and c lies, which is fetched while these are computed:
// rows are far apart, so that the processor does not see the pattern by itself.
#define COLUMNS 128

// ROWS32 adds the next column of a times the row of b in Z16 and Z17 to c.
#define ROWS32(add) \
	PREFETCHT0   AHEAD(SI) \
	PREFETCHT0   (DI)(BX*1) \
	PREFETCHT0   64(DI)(BX*1) \
	VBROADCASTSS (SI), Z18 \
	VBROADCASTSS 4(SI), Z19 \
	add(Z16, Z18, Z0) \
	add(Z17, Z18, Z1) \
	add(Z16, Z19, Z2) \
	add(Z17, Z19, Z3) \
	VBROADCASTSS 8(SI), Z18 \
	VBROADCASTSS 12(SI), Z19 \
	add(Z16, Z18, Z4) \
	add(Z17, Z18, Z5) \
	add(Z16, Z19, Z6) \
	add(Z17, Z19, Z7) \
	VBROADCASTSS 16(SI), Z18 \
	VBROADCASTSS 20(SI), Z19 \
	add(Z16, Z18, Z8) \
	add(Z17, Z18, Z9) \
	add(Z16, Z19, Z10) \
	add(Z17, Z19, Z11) \
	VBROADCASTSS 24(SI), Z18 \
	VBROADCASTSS 28(SI), Z19 \
	add(Z16, Z18, Z12) \
	add(Z17, Z18, Z13) \
	add(Z16, Z19, Z14) \
	add(Z17, Z19, Z15) \
	ADDQ         $32, SI \
	ADDQ         R10, DI \
	DECQ         CX

// NEXT fetches where the next columns of a row of c are written.
#define NEXT(row) \
	PREFETCHT0 COLUMNS(row) \
	PREFETCHT0 (COLUMNS+64)(row) \
	ADDQ       R8, row

// BOUNDED bounds a vector of sums. NaN stays, as MAXPS and MINPS give their last operand, the sum.
#define BOUNDED(lo, hi, sum) \
	VMAXPS sum, lo, sum \
	VMINPS sum, hi, sum

// BOUNDED4 bounds four.
#define BOUNDED4(lo, hi, a, b, c, d) \
	BOUNDED(lo, hi, a) \
	BOUNDED(lo, hi, b) \
	BOUNDED(lo, hi, c) \
	BOUNDED(lo, hi, d)

// MORE adds a row of start to a row of sums, and goes to the next.
#define MORE(one, two) \
	VADDPS (R9), one, K1, one \
	VADDPS 64(R9), two, K2, two \
	ADDQ   R14, R9

#define PANEL8X32(add) \
	MOVQ a+8(FP), SI \
	MOVQ bs+24(FP), R10 \
	MOVQ c+32(FP), DX \
	MOVQ stride+40(FP), R8 \
	SHLQ $2, R8 \
	SHLQ $2, R10 \
	MOVL  mask+56(FP), AX \
	MOVL  AX, R12 \
	KMOVW AX, K1 \
	SHRL  $16, AX \
	KMOVW AX, K2 \
	MOVQ  from+48(FP), R11 \
	MOVQ  start+80(FP), R9 \
	MOVQ  down+88(FP), R14 \
	SHLQ  $2, R14 \
	MOVQ  high+64(FP), R13 \
	MOVL  $COLUMNS, BX \
	TESTQ R11, R11 \
	JNE   panel \
	CMPQ  R10, BX \
	JNE   panel \
	MOVL  $FARTHER, BX \
panel: \
	MOVQ  k+0(FP), CX \
	MOVQ  b+16(FP), DI \
	TESTQ R11, R11 \
	JNE   biased \
	VMOVUPS.Z (R9), K1, Z0 \
	VMOVUPS.Z 64(R9), K2, Z1 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z2 \
	VMOVUPS.Z 64(R9), K2, Z3 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z4 \
	VMOVUPS.Z 64(R9), K2, Z5 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z6 \
	VMOVUPS.Z 64(R9), K2, Z7 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z8 \
	VMOVUPS.Z 64(R9), K2, Z9 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z10 \
	VMOVUPS.Z 64(R9), K2, Z11 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z12 \
	VMOVUPS.Z 64(R9), K2, Z13 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z14 \
	VMOVUPS.Z 64(R9), K2, Z15 \
	ADDQ    R14, R9 \
	TESTQ   R14, R14 \
	JEQ     ahead \
	JMP     multiply \
biased: \
	VBROADCASTSS 0(R11), Z0 \
	VMOVAPS      Z0, Z1 \
	VBROADCASTSS 4(R11), Z2 \
	VMOVAPS      Z2, Z3 \
	VBROADCASTSS 8(R11), Z4 \
	VMOVAPS      Z4, Z5 \
	VBROADCASTSS 12(R11), Z6 \
	VMOVAPS      Z6, Z7 \
	VBROADCASTSS 16(R11), Z8 \
	VMOVAPS      Z8, Z9 \
	VBROADCASTSS 20(R11), Z10 \
	VMOVAPS      Z10, Z11 \
	VBROADCASTSS 24(R11), Z12 \
	VMOVAPS      Z12, Z13 \
	VBROADCASTSS 28(R11), Z14 \
	VMOVAPS      Z14, Z15 \
	TESTQ        R9, R9 \
	JNE          more \
ahead: \
	MOVQ         DX, AX \
	NEXT(AX) \
	NEXT(AX) \
	NEXT(AX) \
	NEXT(AX) \
	NEXT(AX) \
	NEXT(AX) \
	NEXT(AX) \
	NEXT(AX) \
	JMP          multiply \
more: \
	MORE(Z0, Z1) \
	MORE(Z2, Z3) \
	MORE(Z4, Z5) \
	MORE(Z6, Z7) \
	MORE(Z8, Z9) \
	MORE(Z10, Z11) \
	MORE(Z12, Z13) \
	MORE(Z14, Z15) \
multiply: \
	CMPL R12, $-1 \
	JNE  partial \
loop: \
	VMOVUPS      (DI), Z16 \
	VMOVUPS      64(DI), Z17 \
	ROWS32(add) \
	JNZ          loop \
	JMP          done \
partial: \
	VMOVUPS.Z    (DI), K1, Z16 \
	VMOVUPS.Z    64(DI), K2, Z17 \
	ROWS32(add) \
	JNZ          partial \
done: \
	MOVQ         limits+72(FP), AX \
	TESTQ        AX, AX \
	JEQ          write \
	VBROADCASTSS (AX), Z16 \
	VBROADCASTSS 4(AX), Z17 \
	BOUNDED4(Z16, Z17, Z0, Z1, Z2, Z3) \
	BOUNDED4(Z16, Z17, Z4, Z5, Z6, Z7) \
	BOUNDED4(Z16, Z17, Z8, Z9, Z10, Z11) \
	BOUNDED4(Z16, Z17, Z12, Z13, Z14, Z15) \
write: \
	VMOVUPS Z0, K1, (DX) \
	VMOVUPS Z1, K2, 64(DX) \
	ADDQ    R8, DX \
	VMOVUPS Z2, K1, (DX) \
	VMOVUPS Z3, K2, 64(DX) \
	ADDQ    R8, DX \
	VMOVUPS Z4, K1, (DX) \
	VMOVUPS Z5, K2, 64(DX) \
	ADDQ    R8, DX \
	VMOVUPS Z6, K1, (DX) \
	VMOVUPS Z7, K2, 64(DX) \
	ADDQ    R8, DX \
	VMOVUPS Z8, K1, (DX) \
	VMOVUPS Z9, K2, 64(DX) \
	ADDQ    R8, DX \
	VMOVUPS Z10, K1, (DX) \
	VMOVUPS Z11, K2, 64(DX) \
	ADDQ    R8, DX \
	VMOVUPS Z12, K1, (DX) \
	VMOVUPS Z13, K2, 64(DX) \
	ADDQ    R8, DX \
	VMOVUPS Z14, K1, (DX) \
	VMOVUPS Z15, K2, 64(DX) \
	ADDQ    R8, DX \
	TESTQ   R11, R11 \
	JEQ     next \
	ADDQ    $32, R11 \
next: \
	DECQ    R13 \
	JNZ     panel \
	VZEROUPPER \
	RET

// ROWS16 adds the next column of a times the row of b in Z16 to c.
#define ROWS16(add) \
	PREFETCHT0   AHEAD(SI) \
	VBROADCASTSS (SI), Z17 \
	VBROADCASTSS 4(SI), Z18 \
	add(Z16, Z17, Z0) \
	add(Z16, Z18, Z1) \
	VBROADCASTSS 8(SI), Z17 \
	VBROADCASTSS 12(SI), Z18 \
	add(Z16, Z17, Z2) \
	add(Z16, Z18, Z3) \
	VBROADCASTSS 16(SI), Z17 \
	VBROADCASTSS 20(SI), Z18 \
	add(Z16, Z17, Z4) \
	add(Z16, Z18, Z5) \
	VBROADCASTSS 24(SI), Z17 \
	VBROADCASTSS 28(SI), Z18 \
	add(Z16, Z17, Z6) \
	add(Z16, Z18, Z7) \
	ADDQ         $32, SI \
	ADDQ         R10, DI \
	DECQ         CX

// MORE16 is MORE of 16 columns.
#define MORE16(sum) \
	VADDPS (R9), sum, K1, sum \
	ADDQ   R14, R9

#define PANEL8X16(add) \
	MOVQ a+8(FP), SI \
	MOVQ bs+24(FP), R10 \
	MOVQ c+32(FP), DX \
	MOVQ stride+40(FP), R8 \
	SHLQ $2, R8 \
	SHLQ $2, R10 \
	MOVL  mask+56(FP), R12 \
	KMOVW R12, K1 \
	MOVQ  from+48(FP), R11 \
	MOVQ  start+80(FP), R9 \
	MOVQ  down+88(FP), R14 \
	SHLQ  $2, R14 \
	MOVQ  high+64(FP), R13 \
panel: \
	MOVQ  k+0(FP), CX \
	MOVQ  b+16(FP), DI \
	TESTQ R11, R11 \
	JNE   biased \
	VMOVUPS.Z (R9), K1, Z0 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z1 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z2 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z3 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z4 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z5 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z6 \
	ADDQ    R14, R9 \
	VMOVUPS.Z (R9), K1, Z7 \
	ADDQ    R14, R9 \
	JMP     multiply \
biased: \
	VBROADCASTSS 0(R11), Z0 \
	VBROADCASTSS 4(R11), Z1 \
	VBROADCASTSS 8(R11), Z2 \
	VBROADCASTSS 12(R11), Z3 \
	VBROADCASTSS 16(R11), Z4 \
	VBROADCASTSS 20(R11), Z5 \
	VBROADCASTSS 24(R11), Z6 \
	VBROADCASTSS 28(R11), Z7 \
	TESTQ        R9, R9 \
	JEQ          multiply \
	MORE16(Z0) \
	MORE16(Z1) \
	MORE16(Z2) \
	MORE16(Z3) \
	MORE16(Z4) \
	MORE16(Z5) \
	MORE16(Z6) \
	MORE16(Z7) \
multiply: \
	CMPL R12, $0xFFFF \
	JNE  partial \
loop: \
	VMOVUPS      (DI), Z16 \
	ROWS16(add) \
	JNZ          loop \
	JMP          done \
partial: \
	VMOVUPS.Z    (DI), K1, Z16 \
	ROWS16(add) \
	JNZ          partial \
done: \
	MOVQ         limits+72(FP), AX \
	TESTQ        AX, AX \
	JEQ          write \
	VBROADCASTSS (AX), Z16 \
	VBROADCASTSS 4(AX), Z17 \
	BOUNDED4(Z16, Z17, Z0, Z1, Z2, Z3) \
	BOUNDED4(Z16, Z17, Z4, Z5, Z6, Z7) \
write: \
	VMOVUPS Z0, K1, (DX) \
	ADDQ    R8, DX \
	VMOVUPS Z1, K1, (DX) \
	ADDQ    R8, DX \
	VMOVUPS Z2, K1, (DX) \
	ADDQ    R8, DX \
	VMOVUPS Z3, K1, (DX) \
	ADDQ    R8, DX \
	VMOVUPS Z4, K1, (DX) \
	ADDQ    R8, DX \
	VMOVUPS Z5, K1, (DX) \
	ADDQ    R8, DX \
	VMOVUPS Z6, K1, (DX) \
	ADDQ    R8, DX \
	VMOVUPS Z7, K1, (DX) \
	ADDQ    R8, DX \
	TESTQ   R11, R11 \
	JEQ     next \
	ADDQ    $32, R11 \
next: \
	DECQ    R13 \
	JNZ     panel \
	VZEROUPPER \
	RET

// TALLSTEPS is STEPS for tile6x16, with Y15 on the way.
#define TALLSTEPS(x, y, to) \
	VMULPS x, y, Y15 \
	VADDPS Y15, to, to

// TWOROWS adds two rows of a, whose next column lies at a place, times the row of b in Y12 and Y13 to the sums of two rows.
#define TWOROWS(add, at, one, two, three, four) \
	VBROADCASTSS (at)(AX*1), Y14 \
	add(Y12, Y14, one) \
	add(Y13, Y14, two) \
	VBROADCASTSS 4(at)(AX*1), Y14 \
	add(Y12, Y14, three) \
	add(Y13, Y14, four)

// ROW does something with the two vectors of a row of c at R9, and goes to the next row.
#define ROW(move, one, two) \
	move(one, (R9)) \
	move(two, 32(R9)) \
	ADDQ R8, R9

#define LOADROW(to, at) VMOVUPS at, to

#define STOREROW(from, at) VMOVUPS from, at

#define SIXROWS(move) \
	MOVQ DX, R9 \
	ROW(move, Y0, Y1) \
	ROW(move, Y2, Y3) \
	ROW(move, Y4, Y5) \
	ROW(move, Y6, Y7) \
	ROW(move, Y8, Y9) \
	ROW(move, Y10, Y11)

#define TILE6X16(add) \
	MOVQ  k+0(FP), CX \
	MOVQ  one+8(FP), SI \
	MOVQ  two+16(FP), BX \
	MOVQ  three+24(FP), R12 \
	MOVQ  b+32(FP), DI \
	MOVQ  bs+40(FP), R10 \
	MOVQ  c+48(FP), DX \
	MOVQ  stride+56(FP), R8 \
	MOVQ  from+64(FP), R11 \
	SHLQ  $2, R8 \
	SHLQ  $2, R10 \
	XORQ  AX, AX \
	TESTQ R11, R11 \
	JNE   biased \
	SIXROWS(LOADROW) \
	JMP   loop \
biased: \
	VBROADCASTSS 0(R11), Y0 \
	VMOVAPS      Y0, Y1 \
	VBROADCASTSS 4(R11), Y2 \
	VMOVAPS      Y2, Y3 \
	VBROADCASTSS 8(R11), Y4 \
	VMOVAPS      Y4, Y5 \
	VBROADCASTSS 12(R11), Y6 \
	VMOVAPS      Y6, Y7 \
	VBROADCASTSS 16(R11), Y8 \
	VMOVAPS      Y8, Y9 \
	VBROADCASTSS 20(R11), Y10 \
	VMOVAPS      Y10, Y11 \
loop: \
	PREFETCHT0 AHEAD(SI)(AX*1) \
	VMOVUPS    (DI), Y12 \
	VMOVUPS    32(DI), Y13 \
	TWOROWS(add, SI, Y0, Y1, Y2, Y3) \
	TWOROWS(add, BX, Y4, Y5, Y6, Y7) \
	TWOROWS(add, R12, Y8, Y9, Y10, Y11) \
	ADDQ       $32, AX \
	ADDQ       R10, DI \
	DECQ       CX \
	JNZ        loop \
	MOVQ       limits+72(FP), AX \
	TESTQ      AX, AX \
	JEQ        write \
	VBROADCASTSS (AX), Y12 \
	VBROADCASTSS 4(AX), Y13 \
	BOUNDED4(Y12, Y13, Y0, Y1, Y2, Y3) \
	BOUNDED4(Y12, Y13, Y4, Y5, Y6, Y7) \
	BOUNDED4(Y12, Y13, Y8, Y9, Y10, Y11) \
write: \
	SIXROWS(STOREROW) \
	VZEROUPPER \
	RET

#define PANEL4X16(add) \
	MOVQ k+0(FP), CX \
	MOVQ a+8(FP), SI \
	MOVQ b+16(FP), DI \
	MOVQ bs+24(FP), R10 \
	MOVQ c+32(FP), DX \
	MOVQ stride+40(FP), R8 \
	SHLQ $2, R8 \
	SHLQ $2, R10 \
	MOVQ  from+48(FP), R11 \
	TESTQ R11, R11 \
	JNE   biased \
	MOVQ    DX, R9 \
	VMOVUPS (R9), Y0 \
	VMOVUPS 32(R9), Y1 \
	ADDQ    R8, R9 \
	VMOVUPS (R9), Y2 \
	VMOVUPS 32(R9), Y3 \
	ADDQ    R8, R9 \
	VMOVUPS (R9), Y4 \
	VMOVUPS 32(R9), Y5 \
	ADDQ    R8, R9 \
	VMOVUPS (R9), Y6 \
	VMOVUPS 32(R9), Y7 \
	JMP     loop \
biased: \
	VBROADCASTSS 0(R11), Y0 \
	VMOVAPS      Y0, Y1 \
	VBROADCASTSS 4(R11), Y2 \
	VMOVAPS      Y2, Y3 \
	VBROADCASTSS 8(R11), Y4 \
	VMOVAPS      Y4, Y5 \
	VBROADCASTSS 12(R11), Y6 \
	VMOVAPS      Y6, Y7 \
loop: \
	PREFETCHT0   AHEAD(SI) \
	VMOVUPS      (DI), Y8 \
	VMOVUPS      32(DI), Y9 \
	VBROADCASTSS (SI), Y10 \
	VBROADCASTSS 4(SI), Y11 \
	add(Y8, Y10, Y0) \
	add(Y9, Y10, Y1) \
	add(Y8, Y11, Y2) \
	add(Y9, Y11, Y3) \
	VBROADCASTSS 8(SI), Y10 \
	VBROADCASTSS 12(SI), Y11 \
	add(Y8, Y10, Y4) \
	add(Y9, Y10, Y5) \
	add(Y8, Y11, Y6) \
	add(Y9, Y11, Y7) \
	ADDQ         $32, SI \
	ADDQ         R10, DI \
	DECQ         CX \
	JNZ          loop \
	MOVQ         limits+56(FP), AX \
	TESTQ        AX, AX \
	JEQ          write \
	VBROADCASTSS (AX), Y8 \
	VBROADCASTSS 4(AX), Y9 \
	BOUNDED4(Y8, Y9, Y0, Y1, Y2, Y3) \
	BOUNDED4(Y8, Y9, Y4, Y5, Y6, Y7) \
write: \
	VMOVUPS Y0, (DX) \
	VMOVUPS Y1, 32(DX) \
	ADDQ    R8, DX \
	VMOVUPS Y2, (DX) \
	VMOVUPS Y3, 32(DX) \
	ADDQ    R8, DX \
	VMOVUPS Y4, (DX) \
	VMOVUPS Y5, 32(DX) \
	ADDQ    R8, DX \
	VMOVUPS Y6, (DX) \
	VMOVUPS Y7, 32(DX) \
	VZEROUPPER \
	RET

// ROWS is how many rows before its use a row's piece is fetched: rows are pages apart, so that the processor does not see the pattern.
#define ROWS 8

// COLUMN49 has the last column of eight rows of c, from R9 on, in Y1.
#define COLUMN49 \
	VMOVSS      192(R9), X1 \
	ADDQ        R8, R9 \
	VINSERTPS   $0x10, 192(R9), X1, X1 \
	ADDQ        R8, R9 \
	VINSERTPS   $0x20, 192(R9), X1, X1 \
	ADDQ        R8, R9 \
	VINSERTPS   $0x30, 192(R9), X1, X1 \
	ADDQ        R8, R9 \
	VMOVSS      192(R9), X2 \
	ADDQ        R8, R9 \
	VINSERTPS   $0x10, 192(R9), X2, X2 \
	ADDQ        R8, R9 \
	VINSERTPS   $0x20, 192(R9), X2, X2 \
	ADDQ        R8, R9 \
	VINSERTPS   $0x30, 192(R9), X2, X2 \
	VINSERTF128 $1, X2, Y1, Y1

// FOUR49 writes four numbers of that column.
#define FOUR49 \
	VEXTRACTPS $0, X0, 192(R9) \
	ADDQ       R8, R9 \
	VEXTRACTPS $1, X0, 192(R9) \
	ADDQ       R8, R9 \
	VEXTRACTPS $2, X0, 192(R9) \
	ADDQ       R8, R9 \
	VEXTRACTPS $3, X0, 192(R9) \
	ADDQ       R8, R9

// ROW48 does something with the three vectors of a row of c at R9, and goes to the next row.
#define ROW48(move, one, two, three) \
	move(one, (R9)) \
	move(two, 64(R9)) \
	move(three, 128(R9)) \
	ADDQ R8, R9

#define ADDROW(to, at) VADDPS at, to, to

#define ROWS48(move) \
	MOVQ DX, R9 \
	ROW48(move, Z8, Z9, Z10) \
	ROW48(move, Z11, Z12, Z13) \
	ROW48(move, Z14, Z15, Z16) \
	ROW48(move, Z17, Z18, Z19) \
	ROW48(move, Z20, Z21, Z22) \
	ROW48(move, Z23, Z24, Z25) \
	ROW48(move, Z26, Z27, Z28) \
	ROW48(move, Z29, Z30, Z31)

// BIAS48 begins a row of sums at its number.
#define BIAS48(at, one, two, three) \
	VBROADCASTSS at(R11), one \
	VMOVAPS      one, two \
	VMOVAPS      one, three

// ADD48 adds a row of a times the row of b in Z5 to Z7.
#define ADD48(at, times, one, two, three) \
	VBROADCASTSS at(SI), times \
	VFMADD231PS  Z5, times, one \
	VFMADD231PS  Z6, times, two \
	VFMADD231PS  Z7, times, three

// Whole bodies are one line each, so that the program's table of lines stays small.
#define PANEL8X49 \
	MOVQ    a+8(FP), SI \
	MOVQ    bs+32(FP), R10 \
	MOVQ    c+40(FP), DX \
	MOVQ    stride+48(FP), R8 \
	MOVQ    from+56(FP), R11 \
	MOVQ    high+64(FP), R13 \
	SHLQ    $2, R8 \
	SHLQ    $2, R10 \
	MOVBLZX last+88(FP), R12 \
	SHLQ    $6, R12 \
panel: \
	MOVQ  k+0(FP), CX \
	MOVQ  b+16(FP), DI \
	MOVQ  third+24(FP), BX \
	TESTQ R11, R11 \
	JNE   biased \
	ROWS48(LOADROW) \
	TESTQ R12, R12 \
	JEQ   loop \
	MOVQ  DX, R9 \
	COLUMN49 \
	VMOVAPS Y1, Y0 \
	JMP   loop \
biased: \
	BIAS48(0, Z8, Z9, Z10) \
	BIAS48(4, Z11, Z12, Z13) \
	BIAS48(8, Z14, Z15, Z16) \
	BIAS48(12, Z17, Z18, Z19) \
	BIAS48(16, Z20, Z21, Z22) \
	BIAS48(20, Z23, Z24, Z25) \
	BIAS48(24, Z26, Z27, Z28) \
	BIAS48(28, Z29, Z30, Z31) \
	VMOVUPS (R11), Y0 \
	CMPQ    start+80(FP), $0 \
	JEQ     loop \
	ROWS48(ADDROW) \
	TESTQ   R12, R12 \
	JEQ     loop \
	MOVQ    DX, R9 \
	COLUMN49 \
	VADDPS  Y1, Y0, Y0 \
loop: \
	PREFETCHT0   AHEAD(SI) \
	VMOVUPS      (DI), Z5 \
	VMOVUPS      64(DI), Z6 \
	VMOVUPS      (BX), Z7 \
	VBROADCASTSS (BX)(R12*1), Y2 \
	VFMADD231PS  (SI), Y2, Y0 \
	ADD48(0, Z3, Z8, Z9, Z10) \
	ADD48(4, Z4, Z11, Z12, Z13) \
	ADD48(8, Z3, Z14, Z15, Z16) \
	ADD48(12, Z4, Z17, Z18, Z19) \
	ADD48(16, Z3, Z20, Z21, Z22) \
	ADD48(20, Z4, Z23, Z24, Z25) \
	ADD48(24, Z3, Z26, Z27, Z28) \
	ADD48(28, Z4, Z29, Z30, Z31) \
	ADDQ         $32, SI \
	ADDQ         R10, DI \
	ADDQ         R10, BX \
	DECQ         CX \
	JNZ          loop \
	MOVQ         limits+72(FP), AX \
	TESTQ        AX, AX \
	JEQ          write \
	VBROADCASTSS (AX), Z5 \
	VBROADCASTSS 4(AX), Z6 \
	BOUNDED(Y5, Y6, Y0) \
	BOUNDED4(Z5, Z6, Z8, Z9, Z10, Z11) \
	BOUNDED4(Z5, Z6, Z12, Z13, Z14, Z15) \
	BOUNDED4(Z5, Z6, Z16, Z17, Z18, Z19) \
	BOUNDED4(Z5, Z6, Z20, Z21, Z22, Z23) \
	BOUNDED4(Z5, Z6, Z24, Z25, Z26, Z27) \
	BOUNDED4(Z5, Z6, Z28, Z29, Z30, Z31) \
write: \
	ROWS48(STOREROW) \
	TESTQ R12, R12 \
	JEQ   next \
	MOVQ  DX, R9 \
	FOUR49 \
	VEXTRACTF128 $1, Y0, X0 \
	FOUR49 \
next: \
	LEAQ  (DX)(R8*8), DX \
	TESTQ R11, R11 \
	JEQ   more \
	ADDQ  $32, R11 \
more: \
	DECQ R13 \
	JNZ  panel \
	VZEROUPPER \
	RET

#define PACKRUNS \
	MOVQ  rows+0(FP), R13 \
	MOVQ  cols+8(FP), R12 \
	MOVQ  dst+16(FP), DX \
	MOVQ  src+24(FP), R11 \
	MOVQ  stride+32(FP), R8 \
	SHLQ  $2, R8 \
	MOVQ  R13, R10 \
	SHLQ  $7, R10 \
	MOVQ  R12, CX \
	ANDQ  $31, CX \
	MOVQ  $1, AX \
	SHLQ  CX, AX \
	DECQ  AX \
	KMOVW AX, K1 \
	SHRQ  $16, AX \
	KMOVW AX, K2 \
row: \
	MOVQ R11, SI \
	MOVQ DX, DI \
	MOVQ R12, CX \
	LEAQ (R11)(R8*ROWS), R9 \
	SUBQ $32, CX \
	JL   last \
panel: \
	PREFETCHT0 (R9) \
	PREFETCHT0 64(R9) \
	VMOVUPS    (SI), Z0 \
	VMOVUPS    64(SI), Z1 \
	VMOVUPS    Z0, (DI) \
	VMOVUPS    Z1, 64(DI) \
	ADDQ       $128, SI \
	ADDQ       $128, R9 \
	ADDQ       R10, DI \
	SUBQ       $32, CX \
	JGE        panel \
last: \
	CMPQ       CX, $-32 \
	JEQ        next \
	PREFETCHT0 (R9) \
	PREFETCHT0 64(R9) \
	VMOVUPS.Z  (SI), K1, Z0 \
	VMOVUPS.Z  64(SI), K2, Z1 \
	VMOVUPS    Z0, (DI) \
	VMOVUPS    Z1, 64(DI) \
next: \
	ADDQ R8, R11 \
	ADDQ $128, DX \
	DECQ R13 \
	JNZ  row \
	VZEROUPPER \
	RET

#define TAPRUNS \
	MOVQ dst+0(FP), R10 \
	MOVQ split+8(FP), R11 \
	MOVQ pieces+32(FP), R12 \
	MOVQ n+40(FP), R13 \
piece: \
	MOVQ  (R12), SI \
	MOVQ  8(R12), DI \
	KMOVW 16(R12), K1 \
	LEAQ  (R11)(SI*4), SI \
	LEAQ  (R10)(DI*4), DI \
	MOVQ  offsets+16(FP), DX \
	MOVQ  taps+24(FP), CX \
tap: \
	MOVQ      (DX), R9 \
	VMOVUPS.Z (SI)(R9*4), K1, Z0 \
	VMOVUPS   Z0, K1, (DI) \
	ADDQ      $8, DX \
	ADDQ      $128, DI \
	DECQ      CX \
	JNZ       tap \
	ADDQ      $24, R12 \
	DECQ      R13 \
	JNZ       piece \
	VZEROUPPER \
	RET

#define COLUMN32 \
	MOVQ    k+0(FP), CX \
	MOVQ    a+8(FP), SI \
	MOVQ    b+16(FP), DI \
	MOVQ    bs+24(FP), R10 \
	MOVQ    sums+32(FP), DX \
	SHLQ    $2, R10 \
	MOVQ    CX, R8 \
	SHLQ    $5, R8 \
	LEAQ    (R8)(R8*2), R9 \
	VMOVUPS (DX), Y0 \
	VMOVUPS 32(DX), Y1 \
	VMOVUPS 64(DX), Y2 \
	VMOVUPS 96(DX), Y3 \
loop: \
	PREFETCHT0   AHEAD(SI) \
	PREFETCHT0   AHEAD(SI)(R8*1) \
	PREFETCHT0   AHEAD(SI)(R8*2) \
	PREFETCHT0   AHEAD(SI)(R9*1) \
	VBROADCASTSS (DI), Y4 \
	VFMADD231PS  (SI), Y4, Y0 \
	VFMADD231PS  (SI)(R8*1), Y4, Y1 \
	VFMADD231PS  (SI)(R8*2), Y4, Y2 \
	VFMADD231PS  (SI)(R9*1), Y4, Y3 \
	ADDQ         $32, SI \
	ADDQ         R10, DI \
	DECQ         CX \
	JNZ          loop \
	VMOVUPS      Y0, (DX) \
	VMOVUPS      Y1, 32(DX) \
	VMOVUPS      Y2, 64(DX) \
	VMOVUPS      Y3, 96(DX) \
	VZEROUPPER \
	RET

#define FEW16X4 \
	MOVQ    k+0(FP), CX \
	MOVQ    one+8(FP), SI \
	MOVQ    two+16(FP), BX \
	MOVQ    b+24(FP), DI \
	MOVQ    bs+32(FP), R10 \
	MOVQ    start+40(FP), R8 \
	MOVQ    out+48(FP), DX \
	SHLQ    $2, R10 \
	VMOVUPS (R8), Y0 \
	VMOVUPS 32(R8), Y4 \
	VMOVUPS 64(R8), Y1 \
	VMOVUPS 96(R8), Y5 \
	VMOVUPS 128(R8), Y2 \
	VMOVUPS 160(R8), Y6 \
	VMOVUPS 192(R8), Y3 \
	VMOVUPS 224(R8), Y7 \
loop: \
	PREFETCHT0   AHEAD(SI) \
	PREFETCHT0   AHEAD(BX) \
	VMOVUPS      (SI), Y8 \
	VMOVUPS      (BX), Y9 \
	VBROADCASTSS (DI), Y10 \
	VBROADCASTSS 4(DI), Y11 \
	VFMADD231PS  Y8, Y10, Y0 \
	VFMADD231PS  Y9, Y10, Y4 \
	VFMADD231PS  Y8, Y11, Y1 \
	VFMADD231PS  Y9, Y11, Y5 \
	VBROADCASTSS 8(DI), Y10 \
	VBROADCASTSS 12(DI), Y11 \
	VFMADD231PS  Y8, Y10, Y2 \
	VFMADD231PS  Y9, Y10, Y6 \
	VFMADD231PS  Y8, Y11, Y3 \
	VFMADD231PS  Y9, Y11, Y7 \
	ADDQ         $32, SI \
	ADDQ         $32, BX \
	ADDQ         R10, DI \
	DECQ         CX \
	JNZ          loop \
	ROWS4(Y0, Y1, Y2, Y3) \
	ROWS4(Y4, Y5, Y6, Y7) \
	VZEROUPPER \
	RET

#define ROW32 \
	MOVQ    k+0(FP), CX \
	MOVQ    a+8(FP), SI \
	MOVQ    b+16(FP), DI \
	MOVQ    sums+24(FP), DX \
	VMOVUPS (DX), Y0 \
	VMOVUPS 32(DX), Y1 \
	VMOVUPS 64(DX), Y2 \
	VMOVUPS 96(DX), Y3 \
loop: \
	PREFETCHT0   AHEAD(DI) \
	PREFETCHT0   (AHEAD+64)(DI) \
	VBROADCASTSS (SI), Y4 \
	VFMADD231PS  (DI), Y4, Y0 \
	VFMADD231PS  32(DI), Y4, Y1 \
	VFMADD231PS  64(DI), Y4, Y2 \
	VFMADD231PS  96(DI), Y4, Y3 \
	ADDQ         $4, SI \
	ADDQ         $128, DI \
	DECQ         CX \
	JNZ          loop \
	VMOVUPS      Y0, (DX) \
	VMOVUPS      Y1, 32(DX) \
	VMOVUPS      Y2, 64(DX) \
	VMOVUPS      Y3, 96(DX) \
	VZEROUPPER \
	RET

#define COLUMN8 \
	MOVQ    k+0(FP), CX \
	MOVQ    a+8(FP), SI \
	MOVQ    b+16(FP), DI \
	MOVQ    bs+24(FP), R10 \
	MOVQ    sums+32(FP), DX \
	SHLQ    $2, R10 \
	VMOVUPS (DX), Y0 \
loop: \
	VBROADCASTSS (DI), Y4 \
	VFMADD231PS  (SI), Y4, Y0 \
	ADDQ         $32, SI \
	ADDQ         R10, DI \
	DECQ         CX \
	JNZ          loop \
	VMOVUPS      Y0, (DX) \
	VZEROUPPER \
	RET

// func panel8x32(k int, a, b *float32, bs int, c *float32, stride int, from *float32, mask uint32, high int, limits *[2]float32, start *float32, down int)
//
// AVX-512: Z0 to Z15 hold the eight rows of c, two registers each, whose columns K1 and K2 name; Z16 and Z17 a row of b, Z18 and Z19
// elements of a. CX counts k, SI is at a, DI at b, DX at c, R8 and R10 are the strides of c and b in bytes, R11 is at from; R13 counts the
// panels of a, one under the other.
TEXT ·panel8x32(SB), NOSPLIT, $0-96
	PANEL8X32(FUSED)

// func panelSteps8x32(k int, a, b *float32, bs int, c *float32, stride int, from *float32, mask uint32, high int, limits *[2]float32, start *float32, down int)
TEXT ·panelSteps8x32(SB), NOSPLIT, $0-96
	PANEL8X32(ZSTEPS)

// func panel8x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32, mask uint32, high int, limits *[2]float32, start *float32, down int)
//
// AVX-512, the first 16 columns alone: Z0 to Z7 hold the eight rows of c, whose columns K1 names; the rest is as in panel8x32.
TEXT ·panel8x16(SB), NOSPLIT, $0-96
	PANEL8X16(FUSED)

// func panelSteps8x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32, mask uint32, high int, limits *[2]float32, start *float32, down int)
TEXT ·panelSteps8x16(SB), NOSPLIT, $0-96
	PANEL8X16(ZSTEPS)

// func panel4x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32, limits *[2]float32)
//
// AVX2, four rows and 16 columns: Y0 to Y7 hold the rows of c, two registers each; Y8 and Y9 a row of b, Y10 and Y11 elements of a; the
// rest is as in panel8x32, without masks.
TEXT ·panel4x16(SB), NOSPLIT, $0-64
	PANEL4X16(FUSED)

// func panelSteps4x16(k int, a, b *float32, bs int, c *float32, stride int, from *float32, limits *[2]float32)
TEXT ·panelSteps4x16(SB), NOSPLIT, $0-64
	PANEL4X16(YSTEPS)

// func tile6x16(k int, one, two, three, b *float32, bs int, c *float32, stride int, from *float32, limits *[2]float32)
//
// AVX2, six rows and 16 columns: Y0 to Y11 hold the rows of c, two registers each; Y12 and Y13 a row of b, Y14 an element of a, of which
// SI, BX and R12 have two rows each, AX bytes on, in a panel or in two; the rest is as in panel4x16.
TEXT ·tile6x16(SB), NOSPLIT, $0-80
	TILE6X16(FUSED)

// func tileSteps6x16(k int, one, two, three, b *float32, bs int, c *float32, stride int, from *float32, limits *[2]float32)
TEXT ·tileSteps6x16(SB), NOSPLIT, $0-80
	TILE6X16(TALLSTEPS)

// func column8(k int, a, b *float32, bs int, sums *float32)
//
// AVX2: Y0 holds the sums of a panel's rows, Y4 an element of b. CX counts k, SI is at a, DI at b, R10 is the stride of b in bytes.
TEXT ·column8(SB), NOSPLIT, $0-40
	COLUMN8

// func column32(k int, a, b *float32, bs int, sums *float32)
//
// AVX2: Y0 to Y3 hold the sums of four panels, R8 apart, three times which is R9; the rest is as in column8.
TEXT ·column32(SB), NOSPLIT, $0-40
	COLUMN32

// ROWS4 writes the rows of a panel, whose four columns a, b, c and d hold, at DX; Y8 to Y11 on the way.
#define ROWS4(a, b, c, d) \
	VUNPCKLPS    b, a, Y8 \
	VUNPCKHPS    b, a, Y9 \
	VUNPCKLPS    d, c, Y10 \
	VUNPCKHPS    d, c, Y11 \
	VUNPCKLPD    Y10, Y8, a \
	VUNPCKHPD    Y10, Y8, b \
	VUNPCKLPD    Y11, Y9, c \
	VUNPCKHPD    Y11, Y9, d \
	VEXTRACTF128 $0, a, (DX) \
	VEXTRACTF128 $0, b, 16(DX) \
	VEXTRACTF128 $0, c, 32(DX) \
	VEXTRACTF128 $0, d, 48(DX) \
	VEXTRACTF128 $1, a, 64(DX) \
	VEXTRACTF128 $1, b, 80(DX) \
	VEXTRACTF128 $1, c, 96(DX) \
	VEXTRACTF128 $1, d, 112(DX) \
	ADDQ         $128, DX

// func few16x4(k int, one, two, b *float32, bs int, start *[4][16]float32, out *[16][4]float32)
//
// AVX2: Y0 to Y3 hold the four columns of the first panel's rows, Y4 to Y7 those of the second; Y8 and Y9 a column of either panel, Y10
// and Y11 elements of b. CX counts k, SI and BX are at the panels, DI at b, R10 is the stride of b in bytes.
TEXT ·few16x4(SB), NOSPLIT, $0-56
	FEW16X4

// func row32(k int, a, b, sums *float32)
//
// AVX2: Y0 to Y3 hold 32 sums, Y4 an element of a. CX counts k, SI is at a, DI at b.
TEXT ·row32(SB), NOSPLIT, $0-32
	ROW32

// func packRunsZ(rows, cols int, dst, src *float32, stride int)
//
// A row goes to all panels, so that its page is looked up once. R9 is at the row ROWS after it, R10 is a panel's size; K1 and K2 name
// the last panel's columns.
TEXT ·packRunsZ(SB), NOSPLIT, $0-40
	PACKRUNS

// func tapRunsZ(dst, split *float32, offsets *int, taps int, pieces *tapPiece, n int)
//
// SI and DI are where the piece at R12 begins, K1 its lanes, R9 a tap's place.
TEXT ·tapRunsZ(SB), NOSPLIT, $0-48
	TAPRUNS

// func panel8x49(k int, a, b, third *float32, bs int, c *float32, stride int, from *float32, high int, limits *[2]float32, start *float32, last bool)
//
// As panel8x32, for 48 columns, of which the last 16 lie at third, and with last for one more behind them; start is c or nil. Z8 to Z31 are the rows of c,
// Y0 the last column, of which R12 is the place behind BX; where there is none, it is a sum that nobody reads.
TEXT ·panel8x49(SB), NOSPLIT, $0-89
	PANEL8X49
