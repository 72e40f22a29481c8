#include "textflag.h"

// Tiles are written once for both types of number: broadcast, fma and add are the type's instructions, 1 << shift is its size in bytes.

// Rows 0 to 2, 3 to 5 and 6 to 8 of a are at R8, R9 and R10 with distance R12 bytes, row 9 is at R11; R13 is the distance of columns.
#define LEFT10(shift) \
	MOVQ a+8(FP), R8; \
	MOVQ rs+16(FP), R12; \
	MOVQ ks+24(FP), R13; \
	SHLQ $shift, R12; \
	SHLQ $shift, R13; \
	LEAQ (R12)(R12*2), AX; \
	LEAQ (R8)(AX*1), R9; \
	LEAQ (R9)(AX*1), R10; \
	LEAQ (R10)(AX*1), R11

#define NEXT10 \
	ADDQ R13, R8; \
	ADDQ R13, R9; \
	ADDQ R13, R10; \
	ADDQ R13, R11

#define ROW2(broadcast, fma, at, v, s0, s1) \
	broadcast at, v; \
	fma       Z0, v, s0; \
	fma       Z1, v, s1

#define ROW1(broadcast, fma, at, v, s0) \
	broadcast at, v; \
	fma       Z0, v, s0

#define SAVE2(add, s0, s1) \
	add     (DX), s0, s0; \
	add     64(DX), s1, s1; \
	VMOVUPD s0, (DX); \
	VMOVUPD s1, 64(DX); \
	ADDQ    SI, DX

#define SAVE1(add, s0) \
	add     (DX), s0, s0; \
	VMOVUPD s0, (DX); \
	ADDQ    SI, DX

// CX counts the inner axis, DI is at b and BX the distance of its two panels, DX at c and SI the distance of its rows; Z0 and Z1 a row of
// b, Z2 to Z11 elements of a, Z12 to Z31 the ten rows of sums, two registers each.
#define TILE10X2(broadcast, fma, add, shift) \
	MOVQ d+0(FP), CX; \
	LEFT10(shift); \
	MOVQ b+32(FP), DI; \
	MOVQ bs+40(FP), BX; \
	SHLQ $shift, BX; \
	MOVQ c+48(FP), DX; \
	MOVQ cs+56(FP), SI; \
	SHLQ $shift, SI; \
	VPXORQ Z12, Z12, Z12; \
	VPXORQ Z13, Z13, Z13; \
	VPXORQ Z14, Z14, Z14; \
	VPXORQ Z15, Z15, Z15; \
	VPXORQ Z16, Z16, Z16; \
	VPXORQ Z17, Z17, Z17; \
	VPXORQ Z18, Z18, Z18; \
	VPXORQ Z19, Z19, Z19; \
	VPXORQ Z20, Z20, Z20; \
	VPXORQ Z21, Z21, Z21; \
	VPXORQ Z22, Z22, Z22; \
	VPXORQ Z23, Z23, Z23; \
	VPXORQ Z24, Z24, Z24; \
	VPXORQ Z25, Z25, Z25; \
	VPXORQ Z26, Z26, Z26; \
	VPXORQ Z27, Z27, Z27; \
	VPXORQ Z28, Z28, Z28; \
	VPXORQ Z29, Z29, Z29; \
	VPXORQ Z30, Z30, Z30; \
	VPXORQ Z31, Z31, Z31; \
loop: \
	VMOVUPD (DI), Z0; \
	VMOVUPD (DI)(BX*1), Z1; \
	ROW2(broadcast, fma, (R8), Z2, Z12, Z13); \
	ROW2(broadcast, fma, (R8)(R12*1), Z3, Z14, Z15); \
	ROW2(broadcast, fma, (R8)(R12*2), Z4, Z16, Z17); \
	ROW2(broadcast, fma, (R9), Z5, Z18, Z19); \
	ROW2(broadcast, fma, (R9)(R12*1), Z6, Z20, Z21); \
	ROW2(broadcast, fma, (R9)(R12*2), Z7, Z22, Z23); \
	ROW2(broadcast, fma, (R10), Z8, Z24, Z25); \
	ROW2(broadcast, fma, (R10)(R12*1), Z9, Z26, Z27); \
	ROW2(broadcast, fma, (R10)(R12*2), Z10, Z28, Z29); \
	ROW2(broadcast, fma, (R11), Z11, Z30, Z31); \
	NEXT10; \
	ADDQ $64, DI; \
	DECQ CX; \
	JNZ  loop; \
	SAVE2(add, Z12, Z13); \
	SAVE2(add, Z14, Z15); \
	SAVE2(add, Z16, Z17); \
	SAVE2(add, Z18, Z19); \
	SAVE2(add, Z20, Z21); \
	SAVE2(add, Z22, Z23); \
	SAVE2(add, Z24, Z25); \
	SAVE2(add, Z26, Z27); \
	SAVE2(add, Z28, Z29); \
	SAVE2(add, Z30, Z31); \
	VZEROUPPER; \
	RET

// As TILE10X2 with one panel of b, in Z0; Z12 to Z21 the ten rows of sums.
#define TILE10X1(broadcast, fma, add, shift) \
	MOVQ d+0(FP), CX; \
	LEFT10(shift); \
	MOVQ b+32(FP), DI; \
	MOVQ c+40(FP), DX; \
	MOVQ cs+48(FP), SI; \
	SHLQ $shift, SI; \
	VPXORQ Z12, Z12, Z12; \
	VPXORQ Z13, Z13, Z13; \
	VPXORQ Z14, Z14, Z14; \
	VPXORQ Z15, Z15, Z15; \
	VPXORQ Z16, Z16, Z16; \
	VPXORQ Z17, Z17, Z17; \
	VPXORQ Z18, Z18, Z18; \
	VPXORQ Z19, Z19, Z19; \
	VPXORQ Z20, Z20, Z20; \
	VPXORQ Z21, Z21, Z21; \
loop: \
	VMOVUPD (DI), Z0; \
	ROW1(broadcast, fma, (R8), Z2, Z12); \
	ROW1(broadcast, fma, (R8)(R12*1), Z3, Z13); \
	ROW1(broadcast, fma, (R8)(R12*2), Z4, Z14); \
	ROW1(broadcast, fma, (R9), Z5, Z15); \
	ROW1(broadcast, fma, (R9)(R12*1), Z6, Z16); \
	ROW1(broadcast, fma, (R9)(R12*2), Z7, Z17); \
	ROW1(broadcast, fma, (R10), Z8, Z18); \
	ROW1(broadcast, fma, (R10)(R12*1), Z9, Z19); \
	ROW1(broadcast, fma, (R10)(R12*2), Z10, Z20); \
	ROW1(broadcast, fma, (R11), Z11, Z21); \
	NEXT10; \
	ADDQ $64, DI; \
	DECQ CX; \
	JNZ  loop; \
	SAVE1(add, Z12); \
	SAVE1(add, Z13); \
	SAVE1(add, Z14); \
	SAVE1(add, Z15); \
	SAVE1(add, Z16); \
	SAVE1(add, Z17); \
	SAVE1(add, Z18); \
	SAVE1(add, Z19); \
	SAVE1(add, Z20); \
	SAVE1(add, Z21); \
	VZEROUPPER; \
	RET

#define YROW(broadcast, fma, at, v, s0, s1) \
	broadcast at, v; \
	fma       Y0, v, s0; \
	fma       Y1, v, s1

#define YSAVE(add, s0, s1) \
	add     (DX), s0, s0; \
	add     32(DX), s1, s1; \
	VMOVUPD s0, (DX); \
	VMOVUPD s1, 32(DX); \
	ADDQ    SI, DX

// As TILE10X2 for five rows in AVX2: Y0 and Y1 a row of b, Y2 to Y5 elements of a, Y6 to Y15 the rows of sums, two registers each.
#define TILE5X2(broadcast, fma, add, shift) \
	MOVQ d+0(FP), CX; \
	LEFT10(shift); \
	MOVQ b+32(FP), DI; \
	MOVQ c+40(FP), DX; \
	MOVQ cs+48(FP), SI; \
	SHLQ $shift, SI; \
	VXORPD Y6, Y6, Y6; \
	VXORPD Y7, Y7, Y7; \
	VXORPD Y8, Y8, Y8; \
	VXORPD Y9, Y9, Y9; \
	VXORPD Y10, Y10, Y10; \
	VXORPD Y11, Y11, Y11; \
	VXORPD Y12, Y12, Y12; \
	VXORPD Y13, Y13, Y13; \
	VXORPD Y14, Y14, Y14; \
	VXORPD Y15, Y15, Y15; \
loop: \
	VMOVUPD (DI), Y0; \
	VMOVUPD 32(DI), Y1; \
	YROW(broadcast, fma, (R8), Y2, Y6, Y7); \
	YROW(broadcast, fma, (R8)(R12*1), Y3, Y8, Y9); \
	YROW(broadcast, fma, (R8)(R12*2), Y4, Y10, Y11); \
	YROW(broadcast, fma, (R9), Y5, Y12, Y13); \
	YROW(broadcast, fma, (R9)(R12*1), Y2, Y14, Y15); \
	ADDQ R13, R8; \
	ADDQ R13, R9; \
	ADDQ $64, DI; \
	DECQ CX; \
	JNZ  loop; \
	YSAVE(add, Y6, Y7); \
	YSAVE(add, Y8, Y9); \
	YSAVE(add, Y10, Y11); \
	YSAVE(add, Y12, Y13); \
	YSAVE(add, Y14, Y15); \
	VZEROUPPER; \
	RET

// a becomes (a - its mean under p) p w, by column. CX columns left, by 64 bytes, BX rows left, R8 and SI at a, R9 its rows' distance, R10
// and DI at p, R11 its rows' distance, R12 at w; Y0 and Y1 elements of a, Y4 and Y5 means, Y6 and Y7 weights.
#define CURVE(sub, mul, fma, shift) \
	MOVQ    n+8(FP), CX; \
	SHRQ    $(6-shift), CX; \
	MOVQ    a+16(FP), R8; \
	MOVQ    as+24(FP), R9; \
	MOVQ    p+32(FP), R10; \
	MOVQ    ps+40(FP), R11; \
	MOVQ    w+48(FP), R12; \
	SHLQ    $shift, R9; \
	SHLQ    $shift, R11; \
points: \
	MOVQ    c+0(FP), BX; \
	MOVQ    R8, SI; \
	MOVQ    R10, DI; \
	VXORPD  Y4, Y4, Y4; \
	VXORPD  Y5, Y5, Y5; \
mean: \
	VMOVUPD (SI), Y0; \
	VMOVUPD 32(SI), Y1; \
	fma     (DI), Y0, Y4; \
	fma     32(DI), Y1, Y5; \
	ADDQ    R9, SI; \
	ADDQ    R11, DI; \
	DECQ    BX; \
	JNZ     mean; \
	MOVQ    c+0(FP), BX; \
	MOVQ    R8, SI; \
	MOVQ    R10, DI; \
	VMOVUPD (R12), Y6; \
	VMOVUPD 32(R12), Y7; \
curve: \
	VMOVUPD (SI), Y0; \
	VMOVUPD 32(SI), Y1; \
	sub     Y4, Y0, Y0; \
	sub     Y5, Y1, Y1; \
	mul     (DI), Y0, Y0; \
	mul     32(DI), Y1, Y1; \
	mul     Y6, Y0, Y0; \
	mul     Y7, Y1, Y1; \
	VMOVUPD Y0, (SI); \
	VMOVUPD Y1, 32(SI); \
	ADDQ    R9, SI; \
	ADDQ    R11, DI; \
	DECQ    BX; \
	JNZ     curve; \
	ADDQ    $64, R8; \
	ADDQ    $64, R10; \
	ADDQ    $64, R12; \
	DECQ    CX; \
	JNZ     points; \
	VZEROUPPER; \
	RET

// One row times one panel, four rows of the panel at a time in sums of their own. CX counts the inner axis, SI is at the row, DI at the
// panel, DX at the result; Y0 to Y3 elements of the row, Y4 to Y11 the sums, two registers for each of four.
#define ROW(broadcast, fma, add, size) \
	MOVQ   d+0(FP), CX; \
	MOVQ   a+8(FP), SI; \
	MOVQ   b+16(FP), DI; \
	MOVQ   c+24(FP), DX; \
	VXORPD Y4, Y4, Y4; \
	VXORPD Y5, Y5, Y5; \
	VXORPD Y6, Y6, Y6; \
	VXORPD Y7, Y7, Y7; \
	VXORPD Y8, Y8, Y8; \
	VXORPD Y9, Y9, Y9; \
	VXORPD Y10, Y10, Y10; \
	VXORPD Y11, Y11, Y11; \
	SUBQ   $4, CX; \
	JLT    rest; \
four: \
	broadcast (SI), Y0; \
	broadcast (1*size)(SI), Y1; \
	broadcast (2*size)(SI), Y2; \
	broadcast (3*size)(SI), Y3; \
	fma       (DI), Y0, Y4; \
	fma       32(DI), Y0, Y5; \
	fma       64(DI), Y1, Y6; \
	fma       96(DI), Y1, Y7; \
	fma       128(DI), Y2, Y8; \
	fma       160(DI), Y2, Y9; \
	fma       192(DI), Y3, Y10; \
	fma       224(DI), Y3, Y11; \
	ADDQ      $(4*size), SI; \
	ADDQ      $256, DI; \
	SUBQ      $4, CX; \
	JGE       four; \
rest: \
	ADDQ $4, CX; \
	JZ   done; \
one: \
	broadcast (SI), Y0; \
	fma       (DI), Y0, Y4; \
	fma       32(DI), Y0, Y5; \
	ADDQ      $size, SI; \
	ADDQ      $64, DI; \
	DECQ      CX; \
	JNZ       one; \
done: \
	add     Y6, Y4, Y4; \
	add     Y7, Y5, Y5; \
	add     Y10, Y8, Y8; \
	add     Y11, Y9, Y9; \
	add     Y8, Y4, Y4; \
	add     Y9, Y5, Y5; \
	add     (DX), Y4, Y4; \
	add     32(DX), Y5, Y5; \
	VMOVUPD Y4, (DX); \
	VMOVUPD Y5, 32(DX); \
	VZEROUPPER; \
	RET

// The constants of exp in registers, and Z3 (Y3) = exp(Z0), of eight (four) numbers, none below -708; both use what Z1 and Z2 (Y1, Y2, Y4) hold.
#define CONSTANTSZ \
	VBROADCASTSD 0(AX), Z31; \
	VBROADCASTSD 8(AX), Z30; \
	VBROADCASTSD 16(AX), Z29; \
	VBROADCASTSD 24(AX), Z28; \
	VBROADCASTSD 32(AX), Z27; \
	VBROADCASTSD 40(AX), Z26; \
	VBROADCASTSD 48(AX), Z25; \
	VBROADCASTSD 56(AX), Z24; \
	VBROADCASTSD 64(AX), Z23; \
	VBROADCASTSD 72(AX), Z22; \
	VBROADCASTSD 80(AX), Z21; \
	VBROADCASTSD 88(AX), Z20; \
	VBROADCASTSD 96(AX), Z19; \
	VBROADCASTSD 104(AX), Z18; \
	VBROADCASTSD 112(AX), Z17; \
	VBROADCASTSD 120(AX), Z16; \
	VBROADCASTSD 128(AX), Z15; \
	VBROADCASTSD 136(AX), Z14

#define EXPZ \
	VMAXPD       Z0, Z31, Z0; \
	VMOVAPD      Z0, Z1; \
	VFMADD213PD  Z29, Z30, Z1; \
	VPSLLQ       $52, Z1, Z2; \
	VSUBPD       Z29, Z1, Z1; \
	VFNMADD231PD Z28, Z1, Z0; \
	VFNMADD231PD Z27, Z1, Z0; \
	VMOVAPD      Z26, Z3; \
	VFMADD213PD  Z25, Z0, Z3; \
	VFMADD213PD  Z24, Z0, Z3; \
	VFMADD213PD  Z23, Z0, Z3; \
	VFMADD213PD  Z22, Z0, Z3; \
	VFMADD213PD  Z21, Z0, Z3; \
	VFMADD213PD  Z20, Z0, Z3; \
	VFMADD213PD  Z19, Z0, Z3; \
	VFMADD213PD  Z18, Z0, Z3; \
	VFMADD213PD  Z17, Z0, Z3; \
	VFMADD213PD  Z16, Z0, Z3; \
	VFMADD213PD  Z15, Z0, Z3; \
	VFMADD213PD  Z14, Z0, Z3; \
	VFMADD213PD  Z14, Z0, Z3; \
	VMULPD       Z2, Z3, Z3

#define CONSTANTSY \
	VBROADCASTSD 0(AX), Y15; \
	VBROADCASTSD 8(AX), Y14; \
	VBROADCASTSD 16(AX), Y13; \
	VBROADCASTSD 24(AX), Y12; \
	VBROADCASTSD 32(AX), Y11; \
	VBROADCASTSD 40(AX), Y10; \
	VBROADCASTSD 48(AX), Y9; \
	VBROADCASTSD 56(AX), Y8; \
	VBROADCASTSD 136(AX), Y7

#define TERM(at) \
	VBROADCASTSD at(AX), Y4; \
	VFMADD213PD  Y4, Y0, Y3

#define EXPY \
	VMAXPD       Y0, Y15, Y0; \
	VMOVAPD      Y0, Y1; \
	VFMADD213PD  Y13, Y14, Y1; \
	VPSLLQ       $52, Y1, Y2; \
	VSUBPD       Y13, Y1, Y1; \
	VFNMADD231PD Y12, Y1, Y0; \
	VFNMADD231PD Y11, Y1, Y0; \
	VMOVAPD      Y10, Y3; \
	VFMADD213PD  Y9, Y0, Y3; \
	VFMADD213PD  Y8, Y0, Y3; \
	TERM(64); \
	TERM(72); \
	TERM(80); \
	TERM(88); \
	TERM(96); \
	TERM(104); \
	TERM(112); \
	TERM(120); \
	TERM(128); \
	VFMADD213PD  Y7, Y0, Y3; \
	VFMADD213PD  Y7, Y0, Y3; \
	VMULPD       Y2, Y3, Y3

// Four rows at a time. SI, BX, R8 and R9 are at the rows of a, CX counts groups of 64 bytes of a row.
#define FOURROWS(shift, per) \
	MOVQ n+0(FP), CX; \
	SHRQ $per, CX; \
	MOVQ a+8(FP), SI; \
	MOVQ as+16(FP), AX; \
	SHLQ $shift, AX; \
	LEAQ (SI)(AX*1), BX; \
	LEAQ (SI)(AX*2), R8; \
	LEAQ (BX)(AX*2), R9

#define NEXTROWS \
	ADDQ $64, SI; \
	ADDQ $64, BX; \
	ADDQ $64, R8; \
	ADDQ $64, R9

// Y0 and Y1 are parts of x, Y4 to Y7 and Y8 to Y11 sums of the first and second half of a group.
#define DOTS(shift, per, fma, add) \
	FOURROWS(shift, per); \
	MOVQ   x+24(FP), DX; \
	VXORPD Y4, Y4, Y4; \
	VXORPD Y5, Y5, Y5; \
	VXORPD Y6, Y6, Y6; \
	VXORPD Y7, Y7, Y7; \
	VXORPD Y8, Y8, Y8; \
	VXORPD Y9, Y9, Y9; \
	VXORPD Y10, Y10, Y10; \
	VXORPD Y11, Y11, Y11; \
group: \
	VMOVUPD (DX), Y0; \
	VMOVUPD 32(DX), Y1; \
	fma     (SI), Y0, Y4; \
	fma     (BX), Y0, Y5; \
	fma     (R8), Y0, Y6; \
	fma     (R9), Y0, Y7; \
	fma     32(SI), Y1, Y8; \
	fma     32(BX), Y1, Y9; \
	fma     32(R8), Y1, Y10; \
	fma     32(R9), Y1, Y11; \
	NEXTROWS; \
	ADDQ    $64, DX; \
	DECQ    CX; \
	JNZ     group; \
	add     Y8, Y4, Y4; \
	add     Y9, Y5, Y5; \
	add     Y10, Y6, Y6; \
	add     Y11, Y7, Y7

// Y0 and Y1 are parts of y, Y4 to Y7 what the rows are multiplied by.
#define ADDS(shift, per, fma, broadcast) \
	FOURROWS(shift, per); \
	MOVQ      by+24(FP), DX; \
	MOVQ      y+32(FP), DI; \
	broadcast (DX), Y4; \
	broadcast (1<<shift)(DX), Y5; \
	broadcast (2<<shift)(DX), Y6; \
	broadcast (3<<shift)(DX), Y7; \
group: \
	VMOVUPD (DI), Y0; \
	VMOVUPD 32(DI), Y1; \
	fma     (SI), Y4, Y0; \
	fma     32(SI), Y4, Y1; \
	fma     (BX), Y5, Y0; \
	fma     32(BX), Y5, Y1; \
	fma     (R8), Y6, Y0; \
	fma     32(R8), Y6, Y1; \
	fma     (R9), Y7, Y0; \
	fma     32(R9), Y7, Y1; \
	VMOVUPD Y0, (DI); \
	VMOVUPD Y1, 32(DI); \
	NEXTROWS; \
	ADDQ    $64, DI; \
	DECQ    CX; \
	JNZ     group; \
	VZEROUPPER; \
	RET

// func tile10x16(d int, a *float64, rs, ks int, b *float64, bs int, c *float64, cs int)
TEXT ·tile10x16(SB), NOSPLIT, $0-64
	TILE10X2(VBROADCASTSD, VFMADD231PD, VADDPD, 3)

// func tile10x32s(d int, a *float32, rs, ks int, b *float32, bs int, c *float32, cs int)
TEXT ·tile10x32s(SB), NOSPLIT, $0-64
	TILE10X2(VBROADCASTSS, VFMADD231PS, VADDPS, 2)

// func tile10x8(d int, a *float64, rs, ks int, b *float64, c *float64, cs int)
TEXT ·tile10x8(SB), NOSPLIT, $0-56
	TILE10X1(VBROADCASTSD, VFMADD231PD, VADDPD, 3)

// func tile10x16s(d int, a *float32, rs, ks int, b *float32, c *float32, cs int)
TEXT ·tile10x16s(SB), NOSPLIT, $0-56
	TILE10X1(VBROADCASTSS, VFMADD231PS, VADDPS, 2)

// func tile5x8(d int, a *float64, rs, ks int, b *float64, c *float64, cs int)
TEXT ·tile5x8(SB), NOSPLIT, $0-56
	TILE5X2(VBROADCASTSD, VFMADD231PD, VADDPD, 3)

// func tile5x16s(d int, a *float32, rs, ks int, b *float32, c *float32, cs int)
TEXT ·tile5x16s(SB), NOSPLIT, $0-56
	TILE5X2(VBROADCASTSS, VFMADD231PS, VADDPS, 2)

// exp(x) = 2^n exp(r) with n = round(x log2 e), |r| <= log(2)/2 and the Taylor polynomial of degree 13, whose remainder is below
// 1e-17. Adding 1.5 2^52 + 1023 rounds to an integer and leaves n + 1023, the biased exponent of 2^n, in the low bits.
DATA ·exponential+0(SB)/8, $-708.0
DATA ·exponential+8(SB)/8, $1.44269504088896340736
DATA ·exponential+16(SB)/8, $0x43380000000003FF
DATA ·exponential+24(SB)/8, $0x3FE62E42FEE00000 // log 2 in two parts: the first ends in zeros, so that its product with n is exact
DATA ·exponential+32(SB)/8, $0x3DEA39EF35793C76
DATA ·exponential+40(SB)/8, $1.6059043836821613e-10 // 1 / 13!
DATA ·exponential+48(SB)/8, $2.08767569878681e-09
DATA ·exponential+56(SB)/8, $2.505210838544172e-08
DATA ·exponential+64(SB)/8, $2.755731922398589e-07
DATA ·exponential+72(SB)/8, $2.7557319223985893e-06
DATA ·exponential+80(SB)/8, $2.48015873015873e-05
DATA ·exponential+88(SB)/8, $0.0001984126984126984
DATA ·exponential+96(SB)/8, $0.001388888888888889
DATA ·exponential+104(SB)/8, $0.008333333333333333
DATA ·exponential+112(SB)/8, $0.041666666666666664
DATA ·exponential+120(SB)/8, $0.16666666666666666
DATA ·exponential+128(SB)/8, $0.5
DATA ·exponential+136(SB)/8, $1.0
GLOBL ·exponential(SB), RODATA|NOPTR, $144

// func softmaxZ(c, n int, l *float64, ls int, e *float64, es int, p *float64, ps int, add bool, top, sum *float64)
//
// Eight columns at a time, in three passes over the classes: largest, exponentials and their sum, division. CX columns left, BX classes
// left, R8 logits and R9 their rows' distance, R10 exponentials and R11 theirs, R12 probabilities and R13 theirs, SI and DI the source
// and destination of a pass, AX constants; Z5 the largest, Z6 the sum, then its inverse, Z0 to Z3 and Z14 to Z31 the exponential's.
TEXT ·softmaxZ(SB), NOSPLIT, $0-88
	MOVQ n+8(FP), CX
	SHRQ $3, CX
	MOVQ l+16(FP), R8
	MOVQ ls+24(FP), R9
	MOVQ e+32(FP), R10
	MOVQ es+40(FP), R11
	MOVQ p+48(FP), R12
	MOVQ ps+56(FP), R13
	SHLQ $3, R9
	SHLQ $3, R11
	SHLQ $3, R13
	LEAQ ·exponential(SB), AX

	CONSTANTSZ

points:
	MOVQ    c+0(FP), BX
	MOVQ    R8, SI
	VMOVUPD (SI), Z5

largest:
	VMAXPD (SI), Z5, Z5
	ADDQ   R9, SI
	DECQ   BX
	JNZ    largest

	MOVQ   c+0(FP), BX
	MOVQ   R8, SI
	MOVQ   R10, DI
	VPXORQ Z6, Z6, Z6

exponentials:
	VMOVUPD      (SI), Z0
	VSUBPD       Z5, Z0, Z0
	EXPZ
	VMOVUPD      Z3, (DI)
	VADDPD       Z3, Z6, Z6
	ADDQ         R9, SI
	ADDQ         R11, DI
	DECQ         BX
	JNZ          exponentials

	MOVQ    top+72(FP), SI
	VMOVUPD Z5, (SI)
	ADDQ    $64, SI
	MOVQ    SI, top+72(FP)
	MOVQ    sum+80(FP), SI
	VMOVUPD Z6, (SI)
	ADDQ    $64, SI
	MOVQ    SI, sum+80(FP)
	VDIVPD  Z6, Z14, Z6
	MOVQ    c+0(FP), BX
	MOVQ    R10, SI
	MOVQ    R12, DI
	CMPB    add+64(FP), $0
	JNE     add

set:
	VMULPD  (SI), Z6, Z0
	VMOVUPD Z0, (DI)
	ADDQ    R11, SI
	ADDQ    R13, DI
	DECQ    BX
	JNZ     set
	JMP     next

add:
	VMOVUPD     (DI), Z0
	VFMADD231PD (SI), Z6, Z0
	VMOVUPD     Z0, (DI)
	ADDQ        R11, SI
	ADDQ        R13, DI
	DECQ        BX
	JNZ         add

next:
	ADDQ $64, R8
	ADDQ $64, R10
	ADDQ $64, R12
	DECQ CX
	JNZ  points
	VZEROUPPER
	RET

// func softmaxY(c, n int, l *float64, ls int, e *float64, es int, p *float64, ps int, add bool, top, sum *float64)
//
// softmaxZ, four columns at a time; Y0 to Y4 and Y7 to Y15 are the exponential's.
TEXT ·softmaxY(SB), NOSPLIT, $0-88
	MOVQ n+8(FP), CX
	SHRQ $2, CX
	MOVQ l+16(FP), R8
	MOVQ ls+24(FP), R9
	MOVQ e+32(FP), R10
	MOVQ es+40(FP), R11
	MOVQ p+48(FP), R12
	MOVQ ps+56(FP), R13
	SHLQ $3, R9
	SHLQ $3, R11
	SHLQ $3, R13
	LEAQ ·exponential(SB), AX

	CONSTANTSY

points:
	MOVQ    c+0(FP), BX
	MOVQ    R8, SI
	VMOVUPD (SI), Y5

largest:
	VMAXPD (SI), Y5, Y5
	ADDQ   R9, SI
	DECQ   BX
	JNZ    largest

	MOVQ   c+0(FP), BX
	MOVQ   R8, SI
	MOVQ   R10, DI
	VXORPD Y6, Y6, Y6

exponentials:
	VMOVUPD      (SI), Y0
	VSUBPD       Y5, Y0, Y0
	EXPY
	VMOVUPD      Y3, (DI)
	VADDPD       Y3, Y6, Y6
	ADDQ         R9, SI
	ADDQ         R11, DI
	DECQ         BX
	JNZ          exponentials

	MOVQ    top+72(FP), SI
	VMOVUPD Y5, (SI)
	ADDQ    $32, SI
	MOVQ    SI, top+72(FP)
	MOVQ    sum+80(FP), SI
	VMOVUPD Y6, (SI)
	ADDQ    $32, SI
	MOVQ    SI, sum+80(FP)
	VDIVPD  Y6, Y7, Y6
	MOVQ    c+0(FP), BX
	MOVQ    R10, SI
	MOVQ    R12, DI
	CMPB    add+64(FP), $0
	JNE     add

set:
	VMULPD  (SI), Y6, Y0
	VMOVUPD Y0, (DI)
	ADDQ    R11, SI
	ADDQ    R13, DI
	DECQ    BX
	JNZ     set
	JMP     next

add:
	VMOVUPD     (DI), Y0
	VFMADD231PD (SI), Y6, Y0
	VMOVUPD     Y0, (DI)
	ADDQ        R11, SI
	ADDQ        R13, DI
	DECQ        BX
	JNZ         add

next:
	ADDQ $32, R8
	ADDQ $32, R10
	ADDQ $32, R12
	DECQ CX
	JNZ  points
	VZEROUPPER
	RET

// func expSumZ(c, n int, l *float32, ls int, by float64, sum *float64)
//
// CX columns left, eight at a time, BX classes left, R8 and SI logits and R9 their rows' distance, R10 sums, AX constants; Z5 the factor
// of logits, Z6 the sum, Z0 to Z3 and Z14 to Z31 the exponential's.
TEXT ·expSumZ(SB), NOSPLIT, $0-48
	MOVQ n+8(FP), CX
	SHRQ $3, CX
	MOVQ l+16(FP), R8
	MOVQ ls+24(FP), R9
	MOVQ sum+40(FP), R10
	SHLQ $2, R9
	LEAQ ·exponential(SB), AX
	CONSTANTSZ
	VBROADCASTSD by+32(FP), Z5

points:
	MOVQ c+0(FP), BX
	MOVQ R8, SI
	VPXORQ Z6, Z6, Z6

classes:
	VCVTPS2PD (SI), Z0
	VMULPD    Z5, Z0, Z0
	EXPZ
	VADDPD    Z3, Z6, Z6
	ADDQ      R9, SI
	DECQ      BX
	JNZ       classes

	VMOVUPD Z6, (R10)
	ADDQ    $32, R8
	ADDQ    $64, R10
	DECQ    CX
	JNZ     points
	VZEROUPPER
	RET

// func expSumY(c, n int, l *float32, ls int, by float64, sum *float64)
//
// expSumZ, four columns at a time; Y0 to Y4 and Y7 to Y15 are the exponential's.
TEXT ·expSumY(SB), NOSPLIT, $0-48
	MOVQ n+8(FP), CX
	SHRQ $2, CX
	MOVQ l+16(FP), R8
	MOVQ ls+24(FP), R9
	MOVQ sum+40(FP), R10
	SHLQ $2, R9
	LEAQ ·exponential(SB), AX
	CONSTANTSY
	VBROADCASTSD by+32(FP), Y5

points:
	MOVQ c+0(FP), BX
	MOVQ R8, SI
	VXORPD Y6, Y6, Y6

classes:
	VCVTPS2PD (SI), Y0
	VMULPD    Y5, Y0, Y0
	EXPY
	VADDPD    Y3, Y6, Y6
	ADDQ      R9, SI
	DECQ      BX
	JNZ       classes

	VMOVUPD Y6, (R10)
	ADDQ    $16, R8
	ADDQ    $32, R10
	DECQ    CX
	JNZ     points
	VZEROUPPER
	RET

// func blendY(c, n int, l *float64, ls int, p *float64, ps int, s *float64, ss int, inner *float64)
//
// Eight columns at a time: CX groups left, BX classes left, R8 logits and R9 their rows' distance, R10 probabilities and R11 theirs, R12
// sums and R13 theirs, SI, DX and DI at a class; Y0 and Y1 inner, AX its address.
TEXT ·blendY(SB), NOSPLIT, $0-72
	MOVQ n+8(FP), CX
	SHRQ $3, CX
	MOVQ l+16(FP), R8
	MOVQ ls+24(FP), R9
	MOVQ p+32(FP), R10
	MOVQ ps+40(FP), R11
	MOVQ s+48(FP), R12
	MOVQ ss+56(FP), R13
	MOVQ inner+64(FP), AX
	SHLQ $3, R9
	SHLQ $3, R11
	SHLQ $3, R13

points:
	MOVQ    c+0(FP), BX
	MOVQ    R8, SI
	MOVQ    R10, DX
	MOVQ    R12, DI
	VMOVUPD (AX), Y0
	VMOVUPD 32(AX), Y1

classes:
	VMOVUPD     (DX), Y2
	VMOVUPD     32(DX), Y3
	VFMADD231PD (SI), Y2, Y0
	VFMADD231PD 32(SI), Y3, Y1
	VADDPD      (DI), Y2, Y2
	VADDPD      32(DI), Y3, Y3
	VMOVUPD     Y2, (DI)
	VMOVUPD     Y3, 32(DI)
	ADDQ        R9, SI
	ADDQ        R11, DX
	ADDQ        R13, DI
	DECQ        BX
	JNZ         classes

	VMOVUPD Y0, (AX)
	VMOVUPD Y1, 32(AX)
	ADDQ    $64, AX
	ADDQ    $64, R8
	ADDQ    $64, R10
	ADDQ    $64, R12
	DECQ    CX
	JNZ     points
	VZEROUPPER
	RET

// func curveY(c, n int, a *float64, as int, p *float64, ps int, w *float64)
TEXT ·curveY(SB), NOSPLIT, $0-56
	CURVE(VSUBPD, VMULPD, VFMADD231PD, 3)

// func curveYs(c, n int, a *float32, as int, p *float32, ps int, w *float32)
TEXT ·curveYs(SB), NOSPLIT, $0-56
	CURVE(VSUBPS, VMULPS, VFMADD231PS, 2)

// func narrowY(n int, from *float64, to *float32, step int)
//
// CX groups of eight numbers left, SI the source, DI the destination and DX its step; X0 and X1 four numbers each.
TEXT ·narrowY(SB), NOSPLIT, $0-32
	MOVQ n+0(FP), CX
	MOVQ from+8(FP), SI
	MOVQ to+16(FP), DI
	MOVQ step+24(FP), DX
	SHLQ $2, DX

eight:
	VCVTPD2PSY (SI), X0
	VCVTPD2PSY 32(SI), X1
	VMOVUPS    X0, (DI)
	VMOVUPS    X1, 16(DI)
	ADDQ       $64, SI
	ADDQ       DX, DI
	DECQ       CX
	JNZ        eight
	VZEROUPPER
	RET

// func rowY(d int, a, b, c *float64)
TEXT ·rowY(SB), NOSPLIT, $0-32
	ROW(VBROADCASTSD, VFMADD231PD, VADDPD, 8)

// func rowYs(d int, a, b, c *float32)
TEXT ·rowYs(SB), NOSPLIT, $0-32
	ROW(VBROADCASTSS, VFMADD231PS, VADDPS, 4)

// func widenY(c, n int, h *float32, hs int, v, out *float64, vs int, share, l2 float64)
//
// Eight columns at a time, in two passes over the rows: mean, and the difference from it. CX columns left, BX rows left, R8 and SI at h,
// R9 its rows' distance, R10 and DI at v, R11 and DX at out, R12 the distance of their rows; Y0 and Y1 elements, Y4 and Y5 sums, then
// means, Y6 the share, Y7 the penalty.
TEXT ·widenY(SB), NOSPLIT, $0-72
	MOVQ         n+8(FP), CX
	SHRQ         $3, CX
	MOVQ         h+16(FP), R8
	MOVQ         hs+24(FP), R9
	MOVQ         v+32(FP), R10
	MOVQ         out+40(FP), R11
	MOVQ         vs+48(FP), R12
	SHLQ         $2, R9
	SHLQ         $3, R12
	VBROADCASTSD share+56(FP), Y6
	VBROADCASTSD l2+64(FP), Y7

columns:
	MOVQ   c+0(FP), BX
	MOVQ   R8, SI
	VXORPD Y4, Y4, Y4
	VXORPD Y5, Y5, Y5

mean:
	VCVTPS2PD (SI), Y0
	VCVTPS2PD 16(SI), Y1
	VADDPD    Y0, Y4, Y4
	VADDPD    Y1, Y5, Y5
	ADDQ      R9, SI
	DECQ      BX
	JNZ       mean

	VMULPD Y6, Y4, Y4
	VMULPD Y6, Y5, Y5
	MOVQ   c+0(FP), BX
	MOVQ   R8, SI
	MOVQ   R10, DI
	MOVQ   R11, DX

rest:
	VCVTPS2PD   (SI), Y0
	VCVTPS2PD   16(SI), Y1
	VSUBPD      Y4, Y0, Y0
	VSUBPD      Y5, Y1, Y1
	VFMADD231PD (DI), Y7, Y0
	VFMADD231PD 32(DI), Y7, Y1
	VMOVUPD     Y0, (DX)
	VMOVUPD     Y1, 32(DX)
	ADDQ        R9, SI
	ADDQ        R12, DI
	ADDQ        R12, DX
	DECQ        BX
	JNZ         rest

	ADDQ $32, R8
	ADDQ $64, R10
	ADDQ $64, R11
	DECQ CX
	JNZ  columns
	VZEROUPPER
	RET

#define HALFROW(at, sum, by) \
	VMOVUPD     at, Y2; \
	VFMADD231PD Y1, Y2, sum; \
	VFMADD231PD by, Y2, Y0

// func halfY(n int, a *float64, as int, x, y *float64, by, sums *[4]float64)
//
// CX groups of four columns left, SI, BX, R8 and R9 at the rows of a, DX at x, DI at y; Y0 a part of y, Y1 of x, Y2 of a row, Y4 to Y7
// what rows are multiplied by, Y8 to Y11 the sums.
TEXT ·halfY(SB), NOSPLIT, $0-56
	MOVQ         n+0(FP), CX
	SHRQ         $2, CX
	MOVQ         a+8(FP), SI
	MOVQ         as+16(FP), AX
	SHLQ         $3, AX
	LEAQ         (SI)(AX*1), BX
	LEAQ         (SI)(AX*2), R8
	LEAQ         (BX)(AX*2), R9
	MOVQ         x+24(FP), DX
	MOVQ         y+32(FP), DI
	MOVQ         by+40(FP), R10
	VBROADCASTSD (R10), Y4
	VBROADCASTSD 8(R10), Y5
	VBROADCASTSD 16(R10), Y6
	VBROADCASTSD 24(R10), Y7
	VXORPD       Y8, Y8, Y8
	VXORPD       Y9, Y9, Y9
	VXORPD       Y10, Y10, Y10
	VXORPD       Y11, Y11, Y11

four:
	VMOVUPD (DI), Y0
	VMOVUPD (DX), Y1
	HALFROW((SI), Y8, Y4)
	HALFROW((BX), Y9, Y5)
	HALFROW((R8), Y10, Y6)
	HALFROW((R9), Y11, Y7)
	VMOVUPD Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, BX
	ADDQ    $32, R8
	ADDQ    $32, R9
	ADDQ    $32, DX
	ADDQ    $32, DI
	DECQ    CX
	JNZ     four

	VHADDPD      Y9, Y8, Y8
	VHADDPD      Y11, Y10, Y10
	VPERM2F128   $0x21, Y10, Y8, Y0
	VBLENDPD     $12, Y10, Y8, Y8
	VADDPD       Y0, Y8, Y8
	MOVQ         sums+48(FP), R10
	VMOVUPD      Y8, (R10)
	VZEROUPPER
	RET

// func dotsY(n int, a *float64, as int, x, out *float64)
TEXT ·dotsY(SB), NOSPLIT, $0-40
	DOTS(3, 3, VFMADD231PD, VADDPD)
	VHADDPD    Y5, Y4, Y4
	VHADDPD    Y7, Y6, Y6
	VPERM2F128 $0x21, Y6, Y4, Y0
	VBLENDPD   $12, Y6, Y4, Y4
	VADDPD     Y0, Y4, Y4
	MOVQ       out+32(FP), DI
	VMOVUPD    Y4, (DI)
	VZEROUPPER
	RET

// func dotsYs(n int, a *float32, as int, x, out *float32)
TEXT ·dotsYs(SB), NOSPLIT, $0-40
	DOTS(2, 4, VFMADD231PS, VADDPS)
	VHADDPS      Y5, Y4, Y4
	VHADDPS      Y7, Y6, Y6
	VHADDPS      Y6, Y4, Y4
	VEXTRACTF128 $1, Y4, X0
	VADDPS       X0, X4, X4
	MOVQ         out+32(FP), DI
	VMOVUPS      X4, (DI)
	VZEROUPPER
	RET

// func addsY(n int, a *float64, as int, by, y *float64)
TEXT ·addsY(SB), NOSPLIT, $0-40
	ADDS(3, 3, VFMADD231PD, VBROADCASTSD)

// func addsYs(n int, a *float32, as int, by, y *float32)
TEXT ·addsYs(SB), NOSPLIT, $0-40
	ADDS(2, 4, VFMADD231PS, VBROADCASTSS)

// exp as above in float32: the polynomial's degree is 7, with a remainder below 6e-9. The least exponent is -87.
DATA ·exponentialS+0(SB)/4, $-87.0
DATA ·exponentialS+4(SB)/4, $1.44269504
DATA ·exponentialS+8(SB)/4, $0x4B40007F // 1.5 2^23 + 127
DATA ·exponentialS+12(SB)/4, $0x3F317200 // log 2 in two parts, the first with zeros at its end
DATA ·exponentialS+16(SB)/4, $0x35BFBE8E
DATA ·exponentialS+20(SB)/4, $0.00019841270 // 1 / 7!
DATA ·exponentialS+24(SB)/4, $0.0013888889
DATA ·exponentialS+28(SB)/4, $0.0083333333
DATA ·exponentialS+32(SB)/4, $0.041666667
DATA ·exponentialS+36(SB)/4, $0.16666667
DATA ·exponentialS+40(SB)/4, $0.5
DATA ·exponentialS+44(SB)/4, $1.0
GLOBL ·exponentialS(SB), RODATA|NOPTR, $48

// func residualYs(c, n int, a *float32, as int, y *float32, ys int, w *float32)
//
// Eight columns at a time, in three passes over the classes: largest, exponentials and their sum, differences. CX columns left, BX classes
// left, R8 and SI at a, R9 its rows' distance, R10 and DI at y, R11 theirs, R12 at w, AX constants; Y5 the largest, Y6 the sum, then the
// weight over it; Y0 to Y3 the exponential's, Y4 and Y7 to Y15 its constants.
TEXT ·residualYs(SB), NOSPLIT, $0-56
	MOVQ         n+8(FP), CX
	SHRQ         $3, CX
	MOVQ         a+16(FP), R8
	MOVQ         as+24(FP), R9
	MOVQ         y+32(FP), R10
	MOVQ         ys+40(FP), R11
	MOVQ         w+48(FP), R12
	SHLQ         $2, R9
	SHLQ         $2, R11
	LEAQ         ·exponentialS(SB), AX
	VBROADCASTSS 0(AX), Y8
	VBROADCASTSS 4(AX), Y9
	VBROADCASTSS 8(AX), Y10
	VBROADCASTSS 12(AX), Y11
	VBROADCASTSS 16(AX), Y12
	VBROADCASTSS 20(AX), Y4
	VBROADCASTSS 24(AX), Y13
	VBROADCASTSS 28(AX), Y14
	VBROADCASTSS 32(AX), Y15
	VBROADCASTSS 44(AX), Y7

points:
	MOVQ    c+0(FP), BX
	MOVQ    R8, SI
	VMOVUPS (SI), Y5

largest:
	VMAXPS (SI), Y5, Y5
	ADDQ   R9, SI
	DECQ   BX
	JNZ    largest

	MOVQ   c+0(FP), BX
	MOVQ   R8, SI
	VXORPS Y6, Y6, Y6

exponentials:
	VMOVUPS      (SI), Y0
	VSUBPS       Y5, Y0, Y0
	VMAXPS       Y8, Y0, Y0
	VMOVAPS      Y10, Y1
	VFMADD231PS  Y9, Y0, Y1
	VSUBPS       Y10, Y1, Y2
	VFNMADD231PS Y11, Y2, Y0
	VFNMADD231PS Y12, Y2, Y0
	VPSLLD       $23, Y1, Y1
	VMOVAPS      Y4, Y3
	VFMADD213PS  Y13, Y0, Y3
	VFMADD213PS  Y14, Y0, Y3
	VFMADD213PS  Y15, Y0, Y3
	VBROADCASTSS 36(AX), Y2
	VFMADD213PS  Y2, Y0, Y3
	VBROADCASTSS 40(AX), Y2
	VFMADD213PS  Y2, Y0, Y3
	VFMADD213PS  Y7, Y0, Y3
	VFMADD213PS  Y7, Y0, Y3
	VMULPS       Y1, Y3, Y3
	VMOVUPS      Y3, (SI)
	VADDPS       Y3, Y6, Y6
	ADDQ         R9, SI
	DECQ         BX
	JNZ          exponentials

	VMOVUPS (R12), Y0
	VDIVPS  Y6, Y0, Y6
	MOVQ    c+0(FP), BX
	MOVQ    R8, SI
	MOVQ    R10, DI

differences:
	VMOVUPS      (DI), Y0
	VFMSUB231PS  (SI), Y6, Y0
	VMOVUPS      Y0, (SI)
	ADDQ         R9, SI
	ADDQ         R11, DI
	DECQ         BX
	JNZ          differences

	ADDQ $32, R8
	ADDQ $32, R10
	ADDQ $32, R12
	DECQ CX
	JNZ  points
	VZEROUPPER
	RET
