#include "textflag.h"

// In all functions here DI is at the destination and SI at the source, and CX counts down; other registers are named at each.

#define FUSED(m, y, to) VFMADD231PS m, y, to

// STEPS rounds the product.
#define STEPS(m, y, to) \
	VMULPS m, y, Y5 \
	VADDPS Y5, to, to

// TAPSUMS is tapSumsY, with Y5 of STEPS' own.
#define TAPSUMS(add) \
	MOVQ taps+0(FP), R8; \
	MOVQ n+8(FP), DX; \
	MOVQ dst+16(FP), DI; \
	MOVQ src+24(FP), SI; \
	MOVQ offsets+32(FP), R9; \
	MOVQ weights+40(FP), R10; \
run: \
	VBROADCASTSS start+48(FP), Y0; \
	VMOVAPS      Y0, Y1; \
	VMOVAPS      Y0, Y2; \
	VMOVAPS      Y0, Y3; \
	XORQ         CX, CX; \
tap: \
	MOVQ         (R9)(CX*8), AX; \
	VBROADCASTSS (R10)(CX*4), Y4; \
	LEAQ         (SI)(AX*4), BX; \
	add((BX), Y4, Y0); \
	add(32(BX), Y4, Y1); \
	add(64(BX), Y4, Y2); \
	add(96(BX), Y4, Y3); \
	INCQ         CX; \
	CMPQ         CX, R8; \
	JL           tap; \
	VMOVUPS      Y0, (DI); \
	VMOVUPS      Y1, 32(DI); \
	VMOVUPS      Y2, 64(DI); \
	VMOVUPS      Y3, 96(DI); \
	ADDQ         $128, SI; \
	ADDQ         $128, DI; \
	SUBQ         $32, DX; \
	JNZ          run; \
	VZEROUPPER; \
	RET

// func limitY(n int, dst, src *float32, scale, shift, lo, hi float32)
//
// CX numbers left; Y4 scale, Y5 shift, Y6 and Y7 bounds, Y0 eight numbers. MAXPS and MINPS give their last operand, here the number
// itself, where it is NaN.
TEXT ·limitY(SB), NOSPLIT, $0-40
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	VBROADCASTSS scale+24(FP), Y4
	VBROADCASTSS shift+28(FP), Y5
	VBROADCASTSS lo+32(FP), Y6
	VBROADCASTSS hi+36(FP), Y7

loop:
	VMULPS  (SI), Y4, Y0
	VADDPS  Y5, Y0, Y0
	VMAXPS  Y0, Y6, Y0
	VMINPS  Y0, Y7, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// func tapSumsY(taps, n int, dst, src *float32, offsets *int, weights *float32, start float32)
//
// R8 taps, DX numbers left, R9 offsets, R10 weights, CX the tap, AX its offset, BX its source; Y0 to Y3 are 32 sums, Y4 a weight.
TEXT ·tapSumsY(SB), NOSPLIT, $0-52
	TAPSUMS(FUSED)

// func tapStepsY(taps, n int, dst, src *float32, offsets *int, weights *float32, start float32)
TEXT ·tapStepsY(SB), NOSPLIT, $0-52
	TAPSUMS(STEPS)

// MAXIMUM sets c to the larger of c and what lies at m, NaN where one of them is.
#define MAXIMUM(m, c) \
	VCMPPS    $3, c, c, Y5     \
	VMAXPS    m, c, Y6         \
	VBLENDVPS Y5, c, Y6, c

// func tapMaximaY(taps, n int, dst, src *float32, offsets *int)
//
// R8 taps, DX numbers left, R9 offsets, CX the tap, AX its offset, BX its source; Y0 to Y3 are 32 maxima, Y5 and Y6 MAXIMUM's.
TEXT ·tapMaximaY(SB), NOSPLIT, $0-40
	MOVQ taps+0(FP), R8
	MOVQ n+8(FP), DX
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	MOVQ offsets+32(FP), R9

run:
	MOVQ    (R9), AX
	LEAQ    (SI)(AX*4), BX
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVUPS 64(BX), Y2
	VMOVUPS 96(BX), Y3
	MOVQ    $1, CX
	JMP     more

tap:
	MOVQ (R9)(CX*8), AX
	LEAQ (SI)(AX*4), BX
	MAXIMUM((BX), Y0)
	MAXIMUM(32(BX), Y1)
	MAXIMUM(64(BX), Y2)
	MAXIMUM(96(BX), Y3)
	INCQ CX

more:
	CMPQ    CX, R8
	JL      tap
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	ADDQ    $128, SI
	ADDQ    $128, DI
	SUBQ    $32, DX
	JNZ     run
	VZEROUPPER
	RET

// func deinterleaveX(lines, n int, even, odd *float32, apart int, src *float32, from int)
//
// R8 lines left, R9 bytes of a line of either destination, DI and DX the destinations and R10 their lines' distance, SI the source and
// R11 its lines' distance, CX the byte, R12 the last that four elements may begin at; X0 and X1 eight elements, X2 and X3 the even and
// odd ones. The last four elements of a line are done again where there are less of them left.
TEXT ·deinterleaveX(SB), NOSPLIT, $0-56
	MOVQ lines+0(FP), R8
	MOVQ n+8(FP), R9
	MOVQ even+16(FP), DI
	MOVQ odd+24(FP), DX
	MOVQ apart+32(FP), R10
	MOVQ src+40(FP), SI
	MOVQ from+48(FP), R11
	SHLQ $2, R9
	SHLQ $2, R10
	SHLQ $2, R11
	LEAQ -16(R9), R12

line:
	XORQ CX, CX

four:
	VMOVUPS (SI)(CX*2), X0
	VMOVUPS 16(SI)(CX*2), X1
	VSHUFPS $0x88, X1, X0, X2
	VSHUFPS $0xDD, X1, X0, X3
	VMOVUPS X3, (DX)(CX*1)
	VMOVUPS X2, (DI)(CX*1)
	ADDQ    $16, CX
	CMPQ    CX, R12
	JLE     four
	CMPQ    CX, R9
	JGE     next
	MOVQ    R12, CX
	JMP     four

next:
	ADDQ    R10, DI
	ADDQ    R10, DX
	ADDQ    R11, SI
	DECQ    R8
	JNZ     line
	VZEROUPPER
	RET

// LINE sets four elements of the tiles' transform from the lines at SI + a and SI + b: even columns, the odd ones R9 further.
#define LINE(a, b, op) \
	VMOVUPS (SI)(a*1), Y0      \
	VMOVUPS 4(SI)(a*1), Y2     \
	op      (SI)(b*1), Y0, Y0  \
	op      4(SI)(b*1), Y2, Y2 \
	VMOVUPS (BX)(a*1), Y1      \
	VMOVUPS 4(BX)(a*1), Y3     \
	op      (BX)(b*1), Y1, Y1  \
	op      4(BX)(b*1), Y3, Y3 \
	VSUBPS  Y2, Y0, Y4         \
	VADDPS  Y2, Y1, Y5         \
	VSUBPS  Y1, Y2, Y6         \
	VSUBPS  Y3, Y1, Y7         \
	VMOVUPS Y4, (DX)           \
	VMOVUPS Y5, (DX)(R8*1)     \
	VMOVUPS Y6, (DX)(R8*2)     \
	VMOVUPS Y7, (DX)(R13*1)    \
	LEAQ    (DX)(R8*4), DX

// func tilesInY(n int, dst *float32, ds int, src *float32, line, odd int)
//
// CX tiles left, DI and DX where elements of the transform go, R8 and R13 their distance and three times that, SI even columns, BX odd
// ones, R9 to R12 the four lines' distances from there; Y0 to Y3 differences or sums of lines, Y4 to Y7 of their columns.
TEXT ·tilesInY(SB), NOSPLIT, $0-48
	MOVQ n+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ ds+16(FP), R8
	MOVQ src+24(FP), SI
	MOVQ line+32(FP), R10
	MOVQ odd+40(FP), BX
	SHLQ $2, R8
	SHLQ $2, R10
	LEAQ (SI)(BX*4), BX
	XORQ R9, R9
	LEAQ (R10)(R10*1), R11
	LEAQ (R10)(R10*2), R12
	LEAQ (R8)(R8*2), R13

loop:
	MOVQ DI, DX
	LINE(R9, R11, VSUBPS)
	LINE(R10, R11, VADDPS)
	LINE(R11, R10, VSUBPS)
	LINE(R10, R12, VSUBPS)
	ADDQ $32, SI
	ADDQ $32, BX
	ADDQ $32, DI
	SUBQ $8, CX
	JG   loop
	VZEROUPPER
	RET

// COLUMN sums the column of a tile's product at AX, elements R8 bytes apart, to s and t.
#define COLUMN(s, t) \
	VMOVUPS (AX)(R8*4), t      \
	VMOVUPS (AX)(R8*8), Y15    \
	VADDPS  (AX), t, s         \
	VADDPS  Y15, s, s          \
	VSUBPS  Y15, t, t          \
	VSUBPS  (AX)(R10*4), t, t  \
	ADDQ    R8, AX

// PAIR writes the two outputs of a line from its four sums, finished by what lies at R12; bounds in Y13 and Y14.
#define PAIR(a, b, c, d, to) \
	VADDPS     b, a, Y8        \
	VADDPS     c, Y8, Y8       \
	VSUBPS     c, b, Y9        \
	VSUBPS     d, Y9, Y9       \
	VMULPS     (R12), Y8, Y8   \
	VMULPS     (R12), Y9, Y9   \
	VADDPS     32(R12), Y8, Y8 \
	VADDPS     32(R12), Y9, Y9 \
	VMAXPS     Y8, Y13, Y8     \
	VMAXPS     Y9, Y13, Y9     \
	VMINPS     Y8, Y14, Y8     \
	VMINPS     Y9, Y14, Y9     \
	VUNPCKLPS  Y9, Y8, Y10     \
	VUNPCKHPS  Y9, Y8, Y11     \
	VPERM2F128 $0x20, Y11, Y10, Y12 \
	VPERM2F128 $0x31, Y11, Y10, Y11 \
	VMOVUPS    Y12, (to)       \
	VMOVUPS    Y11, 32(to)     \
	ADDQ       $64, to

// func tilesOutY(n int, dst *float32, line int, m *float32, ms int, f *finish)
//
// CX tiles left, DI and DX the two lines of the output, SI and AX the product's elements, R8 and R10 their distance and three times that,
// R12 scale and shift; Y0 to Y7 sums of columns, Y8 to Y12 PAIR's, Y13 and Y14 bounds, Y15 COLUMN's.
TEXT ·tilesOutY(SB), NOSPLIT, $0-48
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         line+16(FP), DX
	MOVQ         m+24(FP), SI
	MOVQ         ms+32(FP), R8
	MOVQ         f+40(FP), R12
	VMOVUPS      64(R12), Y13
	VMOVUPS      96(R12), Y14
	LEAQ         (DI)(DX*4), DX
	SHLQ         $2, R8
	LEAQ         (R8)(R8*2), R10

loop:
	MOVQ SI, AX
	COLUMN(Y0, Y4)
	COLUMN(Y1, Y5)
	COLUMN(Y2, Y6)
	COLUMN(Y3, Y7)
	PAIR(Y0, Y1, Y2, Y3, DI)
	PAIR(Y4, Y5, Y6, Y7, DX)
	ADDQ $32, SI
	SUBQ $8, CX
	JG   loop
	VZEROUPPER
	RET

// PAIRS is a loop of dst = a op b.
#define PAIRS(loop, op) \
loop:                   \
	VMOVUPS (SI), Y0    \
	op      (BX), Y0, Y0 \
	VMOVUPS Y0, (DI)    \
	ADDQ    $32, DI     \
	ADDQ    R8, SI      \
	ADDQ    R9, BX      \
	SUBQ    $8, CX      \
	JNZ     loop        \
	VZEROUPPER          \
	RET

// func pairsY(op, n int, dst, a, b *float32, as, bs int)
//
// AX the operation, CX numbers left, SI and BX the operands, R8 and R9 their steps in bytes, 0 where one is repeated; Y0 the result.
TEXT ·pairsY(SB), NOSPLIT, $0-56
	MOVQ op+0(FP), AX
	MOVQ n+8(FP), CX
	MOVQ dst+16(FP), DI
	MOVQ a+24(FP), SI
	MOVQ b+32(FP), BX
	MOVQ as+40(FP), R8
	MOVQ bs+48(FP), R9
	CMPQ AX, $1
	JLT  sums
	JEQ  differences
	CMPQ AX, $2
	JEQ  products
	PAIRS(quotients, VDIVPS)
	PAIRS(sums, VADDPS)
	PAIRS(differences, VSUBPS)
	PAIRS(products, VMULPS)

// What exponentials are made of: bounds behind which they are infinite or 0, 1/ln 2, ln 2 in two parts of which the first has few
// digits, and Taylor's coefficients.
DATA exps<>+0(SB)/4, $89.0
DATA exps<>+4(SB)/4, $-105.0
DATA exps<>+8(SB)/4, $1.44269504088896341
DATA exps<>+12(SB)/4, $0.693359375
DATA exps<>+16(SB)/4, $-2.12194440054690583e-4
DATA exps<>+20(SB)/4, $1.98412698412698413e-4
DATA exps<>+24(SB)/4, $1.38888888888888889e-3
DATA exps<>+28(SB)/4, $8.33333333333333333e-3
DATA exps<>+32(SB)/4, $4.16666666666666667e-2
DATA exps<>+36(SB)/4, $0.166666666666666667
DATA exps<>+40(SB)/4, $0.5
DATA exps<>+44(SB)/4, $1.0
DATA exps<>+48(SB)/4, $127
GLOBL exps<>(SB), RODATA|NOPTR, $52

// func expY(n int, dst, src *float32, shift float32, sums *[8]float32)
//
// x = k ln 2 + r, |r| <= ln 2 / 2; the power of two goes by two factors, either of which exists. CX numbers left, DX the sums; Y0 is x,
// then r, Y1 is k, then the second exponent, Y2 the power series, Y3 a coefficient, then the first exponent, Y7 to Y13 constants, Y14
// sums, Y15 the shift.
TEXT ·expY(SB), NOSPLIT, $0-40
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	VBROADCASTSS shift+24(FP), Y15
	MOVQ         sums+32(FP), DX
	VMOVUPS      (DX), Y14
	VBROADCASTSS exps<>+0(SB), Y13
	VBROADCASTSS exps<>+4(SB), Y12
	VBROADCASTSS exps<>+8(SB), Y11
	VBROADCASTSS exps<>+12(SB), Y10
	VBROADCASTSS exps<>+16(SB), Y9
	VBROADCASTSS exps<>+44(SB), Y8
	VPBROADCASTD exps<>+48(SB), Y7

loop:
	VMOVUPS      (SI), Y0
	VSUBPS       Y15, Y0, Y0
	VMINPS       Y0, Y13, Y0
	VMAXPS       Y0, Y12, Y0
	VMULPS       Y11, Y0, Y1
	VROUNDPS     $0, Y1, Y1
	VFNMADD231PS Y10, Y1, Y0
	VFNMADD231PS Y9, Y1, Y0
	VBROADCASTSS exps<>+20(SB), Y2
	VBROADCASTSS exps<>+24(SB), Y3
	VFMADD213PS  Y3, Y0, Y2
	VBROADCASTSS exps<>+28(SB), Y3
	VFMADD213PS  Y3, Y0, Y2
	VBROADCASTSS exps<>+32(SB), Y3
	VFMADD213PS  Y3, Y0, Y2
	VBROADCASTSS exps<>+36(SB), Y3
	VFMADD213PS  Y3, Y0, Y2
	VBROADCASTSS exps<>+40(SB), Y3
	VFMADD213PS  Y3, Y0, Y2
	VFMADD213PS  Y8, Y0, Y2
	VFMADD213PS  Y8, Y0, Y2
	VCVTPS2DQ    Y1, Y1
	VPSRAD       $1, Y1, Y3
	VPSUBD       Y3, Y1, Y1
	VPADDD       Y7, Y3, Y3
	VPADDD       Y7, Y1, Y1
	VPSLLD       $23, Y3, Y3
	VPSLLD       $23, Y1, Y1
	VMULPS       Y3, Y2, Y2
	VMULPS       Y1, Y2, Y2
	VADDPS       Y2, Y14, Y14
	VMOVUPS      Y2, (DI)
	ADDQ         $32, SI
	ADDQ         $32, DI
	SUBQ         $8, CX
	JNZ          loop
	VMOVUPS      Y14, (DX)
	VZEROUPPER
	RET

// func largestY(n int, src *float32, to *[8]float32)
//
// CX numbers left; Y0 the largest so far, by lane.
TEXT ·largestY(SB), NOSPLIT, $0-24
	MOVQ    n+0(FP), CX
	MOVQ    src+8(FP), SI
	MOVQ    to+16(FP), DI
	VMOVUPS (DI), Y0

loop:
	VMAXPS  (SI), Y0, Y0
	ADDQ    $32, SI
	SUBQ    $8, CX
	JNZ     loop
	VMOVUPS Y0, (DI)
	VZEROUPPER
	RET

// QUOTIENTOF reads the coefficients at DX that stay in registers: Y10 and Y11 the first of P and Q, Y12 and Y13 are -1 and 1, Y14 and Y15
// the bounds of x.
#define QUOTIENTOF \
	VBROADCASTSS (DX), Y15           \
	VXORPS       Y14, Y14, Y14       \
	VSUBPS       Y15, Y14, Y14       \
	VBROADCASTSS exps<>+44(SB), Y13  \
	VXORPS       Y12, Y12, Y12       \
	VSUBPS       Y13, Y12, Y12       \
	VBROADCASTSS 24(DX), Y11         \
	VBROADCASTSS 44(DX), Y10

// QUOTIENT sets Y2 to the quotient of x in Y0, whose square is Y1; Y2 and Y3 are P and Q by Horner's rule, Y4 and Y5 their next coefficients.
#define QUOTIENT \
	VMINPS       Y0, Y15, Y0  \
	VMAXPS       Y0, Y14, Y0  \
	VMULPS       Y0, Y0, Y1   \
	VMOVAPS      Y11, Y2      \
	VMOVAPS      Y10, Y3      \
	VBROADCASTSS 20(DX), Y4   \
	VBROADCASTSS 40(DX), Y5   \
	VFMADD213PS  Y4, Y1, Y2   \
	VFMADD213PS  Y5, Y1, Y3   \
	VBROADCASTSS 16(DX), Y4   \
	VBROADCASTSS 36(DX), Y5   \
	VFMADD213PS  Y4, Y1, Y2   \
	VFMADD213PS  Y5, Y1, Y3   \
	VBROADCASTSS 12(DX), Y4   \
	VBROADCASTSS 32(DX), Y5   \
	VFMADD213PS  Y4, Y1, Y2   \
	VFMADD213PS  Y5, Y1, Y3   \
	VBROADCASTSS 8(DX), Y4    \
	VBROADCASTSS 28(DX), Y5   \
	VFMADD213PS  Y4, Y1, Y2   \
	VFMADD213PS  Y5, Y1, Y3   \
	VBROADCASTSS 4(DX), Y4    \
	VFMADD213PS  Y4, Y1, Y2   \
	VFMADD213PS  Y13, Y1, Y3  \
	VMULPS       Y0, Y2, Y2   \
	VDIVPS       Y3, Y2, Y2   \
	VMINPS       Y2, Y13, Y2  \
	VMAXPS       Y2, Y12, Y2

// func quotientY(n int, dst, src *float32, of *quotient)
//
// CX numbers left, DX the quotient's coefficients.
TEXT ·quotientY(SB), NOSPLIT, $0-32
	MOVQ n+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ src+16(FP), SI
	MOVQ of+24(FP), DX
	QUOTIENTOF

loop:
	VMOVUPS (SI), Y0
	QUOTIENT
	VMOVUPS Y2, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// The constants of GELU: 1 / sqrt 2 and 1/2.
DATA halves<>+0(SB)/4, $0.707106781186547524
DATA halves<>+4(SB)/4, $0.5
GLOBL halves<>(SB), RODATA|NOPTR, $8

// func geluY(n int, dst, src *float32, erf *quotient)
//
// CX numbers left, DX the coefficients of erf; Y6 is x, Y7 1 / sqrt 2, Y8 1/2.
TEXT ·geluY(SB), NOSPLIT, $0-32
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	MOVQ         erf+24(FP), DX
	VBROADCASTSS halves<>+0(SB), Y7
	VBROADCASTSS halves<>+4(SB), Y8
	QUOTIENTOF

loop:
	VMOVUPS (SI), Y6
	VMULPS  Y7, Y6, Y0
	QUOTIENT
	VMULPS  Y8, Y2, Y2
	VADDPS  Y8, Y2, Y2
	VMULPS  Y6, Y2, Y2
	VMOVUPS Y2, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// The constants of HardSwish and of a sign, 1/6 and -1, and what the exponential of a number with its sign changed is made of in finishZ:
// bounds and -1/ln 2.
DATA ends<>+0(SB)/4, $0.166666666666666667
DATA ends<>+4(SB)/4, $-1.0
DATA ends<>+8(SB)/4, $-89.0
DATA ends<>+12(SB)/4, $105.0
DATA ends<>+16(SB)/4, $-1.44269504088896341
GLOBL ends<>(SB), RODATA|NOPTR, $20

// EXPCONSTANTS are those of EXPNEGATIVE, of which Z30 is one.
#define EXPCONSTANTS \
	VBROADCASTSS ends<>+8(SB), Z19  \
	VBROADCASTSS ends<>+12(SB), Z20 \
	VBROADCASTSS ends<>+16(SB), Z21 \
	VBROADCASTSS exps<>+12(SB), Z22 \
	VBROADCASTSS exps<>+16(SB), Z23 \
	VBROADCASTSS exps<>+20(SB), Z24 \
	VBROADCASTSS exps<>+24(SB), Z25 \
	VBROADCASTSS exps<>+28(SB), Z26 \
	VBROADCASTSS exps<>+32(SB), Z27 \
	VBROADCASTSS exps<>+36(SB), Z28 \
	VBROADCASTSS exps<>+40(SB), Z29 \
	VBROADCASTSS exps<>+44(SB), Z30

// EXPNEGATIVE sets two to e^-x for one = x, as expY has the exponential; one and three are other numbers afterwards. The remainder has
// the other sign than there, which costs no operation and no bit: rounding is the same on either side of zero.
#define EXPNEGATIVE(one, two, three) \
	VMAXPS       one, Z19, one    \
	VMINPS       one, Z20, one    \
	VMULPS       Z21, one, three  \
	VRNDSCALEPS  $0, three, three \
	VFMADD231PS  Z22, three, one  \
	VFMADD231PS  Z23, three, one  \
	VMOVAPS      Z24, two         \
	VFNMADD213PS Z25, one, two    \
	VFNMADD213PS Z26, one, two    \
	VFNMADD213PS Z27, one, two    \
	VFNMADD213PS Z28, one, two    \
	VFNMADD213PS Z29, one, two    \
	VFNMADD213PS Z30, one, two    \
	VFNMADD213PS Z30, one, two    \
	VSCALEFPS    three, two, two

// LOGISTIC sets one to 1/(1 + e^-x) for one = x, two and three on the way.
#define LOGISTIC(one, two, three) \
	EXPNEGATIVE(one, two, three) \
	VADDPS Z30, two, two          \
	VDIVPS two, Z30, one

// func finishZ(e *ending)
//
// AX the curve, R9 rows left, R10 columns of a row, R8 the stride of source and destination in bytes, R13 and BX scales and shifts and DX
// the step between them, CX the column, R15 columns left; K1 the columns of a vector, K2 those of the last. Z0 is the number, Z1 to Z3
// are the curve's, Z4 to Z7 scale, shift and bounds, Z16 to Z30 constants. Exponentials are done for two vectors at once, as long as there
// are as many, the second one in Z8 to Z11: each waits for itself. Before them, scales that do not step are 1, and shifts are none.
TEXT ·finishZ(SB), NOSPLIT, $0-8
	MOVQ         e+0(FP), AX
	MOVQ         0(AX), DI
	MOVQ         8(AX), SI
	MOVQ         16(AX), R13
	MOVQ         24(AX), BX
	MOVQ         32(AX), R9
	MOVQ         40(AX), R10
	MOVQ         48(AX), R8
	MOVQ         56(AX), DX
	VBROADCASTSS 72(AX), Z6
	VBROADCASTSS 76(AX), Z7
	MOVQ         64(AX), AX
	MOVQ         R10, CX
	ANDQ         $15, CX
	MOVL         $1, R15
	SHLL         CX, R15
	DECL         R15
	KMOVW        R15, K2
	VBROADCASTSS ends<>+0(SB), Z16
	VXORPS       Z18, Z18, Z18
	EXPCONSTANTS

row:
	VBROADCASTSS (R13), Z4
	VBROADCASTSS (BX), Z5
	XORQ         CX, CX
	MOVQ         R10, R15
	CMPQ         AX, $2
	JGE          pair

column:
	KXNORW K1, K1, K1
	CMPQ   R15, $16
	JGE    whole
	KMOVW  K2, K1

whole:
	VMOVUPS.Z (SI)(CX*4), K1, Z0
	VMULPS    Z4, Z0, Z0
	VADDPS    Z5, Z0, Z0
	CMPQ      AX, $1
	JGT       exponential
	JEQ       hard
	VMAXPS    Z0, Z6, Z0
	VMINPS    Z0, Z7, Z0
	JMP       write

hard:
	VMULPS Z16, Z0, Z1
	VADDPS Z29, Z1, Z1
	VMAXPS Z1, Z18, Z1
	VMINPS Z1, Z30, Z1
	VMULPS Z1, Z0, Z0
	JMP    write

exponential:
	VMOVAPS Z0, Z1
	LOGISTIC(Z1, Z2, Z3)
	CMPQ    AX, $2
	JEQ     sigmoid
	VMULPS  Z1, Z0, Z0
	JMP     write

sigmoid:
	VMOVAPS Z1, Z0

write:
	VMOVUPS Z0, K1, (DI)(CX*4)
	ADDQ    $16, CX
	SUBQ    $16, R15
	JGT     column

next:
	ADDQ    R8, SI
	ADDQ    R8, DI
	ADDQ    DX, R13
	ADDQ    DX, BX
	DECQ    R9
	JNZ     row
	VZEROUPPER
	RET

pair:
	CMPQ    R15, $32
	JLT     column
	VMOVUPS (SI)(CX*4), Z0
	VMOVUPS 64(SI)(CX*4), Z8
	TESTQ   DX, DX
	JEQ     unscaled
	VMULPS  Z4, Z0, Z0
	VMULPS  Z4, Z8, Z8
	VADDPS  Z5, Z0, Z0
	VADDPS  Z5, Z8, Z8

unscaled:
	VMOVAPS Z0, Z1
	VMOVAPS Z8, Z9
	LOGISTIC(Z1, Z2, Z3)
	LOGISTIC(Z9, Z10, Z11)
	CMPQ    AX, $2
	JEQ     both
	VMULPS  Z1, Z0, Z1
	VMULPS  Z9, Z8, Z9

both:
	VMOVUPS Z1, (DI)(CX*4)
	VMOVUPS Z9, 64(DI)(CX*4)
	ADDQ    $32, CX
	SUBQ    $32, R15
	JGT     pair
	JMP     next

// func softmaxZ(rows, n int, dst, src *float32)
//
// R9 rows left, R10 bytes of a row, CX the column, R11 that of a row's last vector, of which K2 names the columns. Z0 the largest number,
// then the sum's reciprocal; Z1 to Z3 EXPNEGATIVE's, Z4 the largest number, Y5 the sum of exponentials in the lanes of expY, Z18 minus
// infinity.
TEXT ·softmaxZ(SB), NOSPLIT, $32-32
	MOVQ rows+0(FP), R9
	MOVQ n+8(FP), R10
	MOVQ dst+16(FP), DI
	MOVQ src+24(FP), SI
	EXPCONSTANTS
	LEAQ -1(R10), R11
	MOVQ R11, CX
	ANDQ $15, CX
	MOVL $2, AX
	SHLL CX, AX
	DECL AX
	KMOVW AX, K2
	ANDQ $-16, R11
	SHLQ $2, R10
	MOVL $0xFF800000, AX
	VPBROADCASTD AX, Z18

row:
	VMOVAPS Z18, Z0
	VMOVUPS (SI)(R11*4), K2, Z0
	XORQ    CX, CX
	CMPQ    CX, R11
	JGE     top

largest:
	VMAXPS (SI)(CX*4), Z0, Z0
	ADDQ   $16, CX
	CMPQ   CX, R11
	JLT    largest

top:
	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS        Y1, Y0, Y0
	VEXTRACTF128  $1, Y0, X1
	VMAXPS        X1, X0, X0
	VPERMILPD     $1, X0, X1
	VMAXPS        X1, X0, X0
	VMOVSHDUP     X0, X1
	VMAXPS        X1, X0, X0
	VBROADCASTSS  X0, Z4
	VXORPS        Y5, Y5, Y5
	XORQ          CX, CX
	CMPQ          CX, R11
	JGE           last

exponential:
	VSUBPS        (SI)(CX*4), Z4, Z1
	EXPNEGATIVE(Z1, Z2, Z3)
	VMOVUPS       Z2, (DI)(CX*4)
	VADDPS        Y2, Y5, Y5
	VEXTRACTF64X4 $1, Z2, Y2
	VADDPS        Y2, Y5, Y5
	ADDQ          $16, CX
	CMPQ          CX, R11
	JLT           exponential

last:
	VMOVUPS.Z     (SI)(CX*4), K2, Z1
	VSUBPS        Z1, Z4, Z1
	EXPNEGATIVE(Z1, Z2, Z3)
	VMOVAPS.Z     Z2, K2, Z2
	VADDPS        Y2, Y5, Y5
	VEXTRACTF64X4 $1, Z2, Y3
	VADDPS        Y3, Y5, Y5
	VMOVUPS       Y5, lanes-32(SP)
	VMOVSS        lanes-32(SP), X0
	VADDSS        lanes-28(SP), X0, X0
	VADDSS        lanes-24(SP), X0, X0
	VADDSS        lanes-20(SP), X0, X0
	VADDSS        lanes-16(SP), X0, X0
	VADDSS        lanes-12(SP), X0, X0
	VADDSS        lanes-8(SP), X0, X0
	VADDSS        lanes-4(SP), X0, X0
	VDIVSS        X0, X30, X0
	VBROADCASTSS  X0, Z0
	VMULPS        Z0, Z2, Z2
	VMOVUPS       Z2, K2, (DI)(CX*4)

scale:
	SUBQ    $16, CX
	JLT     next
	VMULPS  (DI)(CX*4), Z0, Z1
	VMOVUPS Z1, (DI)(CX*4)
	JMP     scale

next:
	ADDQ R10, SI
	ADDQ R10, DI
	DECQ R9
	JNZ  row
	VZEROUPPER
	RET

// QUOTIENTZ is QUOTIENT, to the bit, with all coefficients in registers, Z16 to Z21 of P and Z22 to Z26 of Q.
#define QUOTIENTZ(x, square, p, q) \
	VMINPS      x, Z27, x      \
	VMAXPS      x, Z28, x      \
	VMULPS      x, x, square   \
	VMOVAPS     Z21, p         \
	VMOVAPS     Z26, q         \
	VFMADD213PS Z20, square, p \
	VFMADD213PS Z25, square, q \
	VFMADD213PS Z19, square, p \
	VFMADD213PS Z24, square, q \
	VFMADD213PS Z18, square, p \
	VFMADD213PS Z23, square, q \
	VFMADD213PS Z17, square, p \
	VFMADD213PS Z22, square, q \
	VFMADD213PS Z16, square, p \
	VFMADD213PS Z29, square, q \
	VMULPS      x, p, p        \
	VDIVPS      q, p, p        \
	VMINPS      p, Z29, p      \
	VMAXPS      p, Z30, p

// func endsZ(e *lineEnds)
//
// R9 rows left, R10 numbers of a row, CX those left, R8 bytes from row to row, R11 scales or nil, BX the place of the next one, DX the
// coefficients of erf for GELU, or nil. GELU is that of geluY, to the bit. K1 names the numbers of a vector; Z0 is x, Z1 to Z4 QUOTIENTZ's,
// Z27 and Z28 the bounds of x, Z29 and Z30 are 1 and -1, Z15 and Z31 the constants.
TEXT ·endsZ(SB), NOSPLIT, $0-8
	MOVQ         e+0(FP), AX
	MOVQ         0(AX), DI
	MOVQ         8(AX), SI
	MOVQ         16(AX), R9
	MOVQ         24(AX), R10
	MOVQ         32(AX), R8
	MOVQ         40(AX), R11
	MOVQ         48(AX), DX
	TESTQ        DX, DX
	JEQ          row
	VBROADCASTSS halves<>+0(SB), Z31
	VBROADCASTSS halves<>+4(SB), Z15
	VBROADCASTSS (DX), Z27
	VBROADCASTSS 4(DX), Z16
	VBROADCASTSS 8(DX), Z17
	VBROADCASTSS 12(DX), Z18
	VBROADCASTSS 16(DX), Z19
	VBROADCASTSS 20(DX), Z20
	VBROADCASTSS 24(DX), Z21
	VBROADCASTSS 28(DX), Z22
	VBROADCASTSS 32(DX), Z23
	VBROADCASTSS 36(DX), Z24
	VBROADCASTSS 40(DX), Z25
	VBROADCASTSS 44(DX), Z26
	VBROADCASTSS exps<>+44(SB), Z29
	VBROADCASTSS ends<>+4(SB), Z30
	VMULPS       Z30, Z27, Z28

row:
	MOVQ   R10, CX
	XORQ   BX, BX
	KXNORW K1, K1, K1

loop:
	CMPQ  CX, $16
	JGE   whole
	MOVL  $1, AX
	SHLL  CX, AX
	DECL  AX
	KMOVW AX, K1

whole:
	VMOVUPS.Z (SI)(BX*4), K1, Z0
	TESTQ     R11, R11
	JEQ       scaled
	VMOVUPS.Z (R11)(BX*4), K1, Z1
	VMULPS    Z1, Z0, Z0

scaled:
	TESTQ   DX, DX
	JEQ     write
	VMULPS  Z31, Z0, Z1
	QUOTIENTZ(Z1, Z2, Z3, Z4)
	VMULPS  Z15, Z3, Z3
	VADDPS  Z15, Z3, Z3
	VMULPS  Z0, Z3, Z0

write:
	VMOVUPS Z0, K1, (DI)(BX*4)
	ADDQ    $16, BX
	SUBQ    $16, CX
	JGT     loop
	ADDQ    R8, DI
	ADDQ    R8, SI
	DECQ    R9
	JNZ     row
	VZEROUPPER
	RET

// The lanes that are wanted of a vector, which begins as many before the middle.
DATA wanted<>+0(SB)/8, $-1
DATA wanted<>+8(SB)/8, $-1
DATA wanted<>+16(SB)/8, $-1
DATA wanted<>+24(SB)/8, $-1
DATA wanted<>+32(SB)/8, $0
DATA wanted<>+40(SB)/8, $0
DATA wanted<>+48(SB)/8, $0
DATA wanted<>+56(SB)/8, $0
GLOBL wanted<>(SB), RODATA|NOPTR, $64

// COEFFICIENT adds the next coefficient of an exponential, at a place in exps, to Y1 Y2.
#define COEFFICIENT(at) \
	VBROADCASTSS exps<>+at(SB), Y14 \
	VFMADD213PS  Y14, Y1, Y2

// func finishY(e *ending)
//
// As finishZ, to the bit, eight columns at a time: Y0 is the number, Y1 to Y3 are the curve's, Y4 to Y7 scale, shift and bounds, Y8 to Y13
// constants, Y14 a coefficient, then the second factor's exponent, Y15 names the columns of a row's last vector.
TEXT ·finishY(SB), NOSPLIT, $32-8
	MOVQ         e+0(FP), AX
	MOVQ         0(AX), DI
	MOVQ         8(AX), SI
	MOVQ         16(AX), R13
	MOVQ         24(AX), BX
	MOVQ         32(AX), R9
	MOVQ         40(AX), R10
	MOVQ         48(AX), R8
	MOVQ         56(AX), DX
	VBROADCASTSS 72(AX), Y6
	VBROADCASTSS 76(AX), Y7
	MOVQ         64(AX), AX
	MOVQ         R10, CX
	ANDQ         $7, CX
	SHLQ         $2, CX
	LEAQ         wanted<>+32(SB), R11
	SUBQ         CX, R11
	VMOVUPS      (R11), Y15
	LEAQ         rest-32(SP), R11
	VBROADCASTSS exps<>+8(SB), Y8
	VBROADCASTSS exps<>+12(SB), Y9
	VBROADCASTSS exps<>+16(SB), Y10
	VBROADCASTSS exps<>+44(SB), Y11
	VBROADCASTSS exps<>+0(SB), Y12
	VBROADCASTSS exps<>+4(SB), Y13

row:
	VBROADCASTSS (R13), Y4
	VBROADCASTSS (BX), Y5
	XORQ         CX, CX
	MOVQ         R10, R15

column:
	CMPQ       R15, $8
	JLT        last
	VMOVUPS    (SI)(CX*4), Y0
	JMP        work

last:
	VMASKMOVPS (SI)(CX*4), Y15, Y0

work:
	VMULPS Y4, Y0, Y0
	VADDPS Y5, Y0, Y0
	CMPQ   AX, $1
	JGT    exponential
	JEQ    hard
	VMAXPS Y0, Y6, Y0
	VMINPS Y0, Y7, Y0
	JMP    write

hard:
	VBROADCASTSS ends<>+0(SB), Y2
	VBROADCASTSS exps<>+40(SB), Y3
	VXORPS       Y14, Y14, Y14
	VMULPS       Y2, Y0, Y1
	VADDPS       Y3, Y1, Y1
	VMAXPS       Y1, Y14, Y1
	VMINPS       Y1, Y11, Y1
	VMULPS       Y1, Y0, Y0
	JMP          write

exponential:
	VBROADCASTSS ends<>+4(SB), Y3
	VMULPS       Y3, Y0, Y1
	VMINPS       Y1, Y12, Y1
	VMAXPS       Y1, Y13, Y1
	VMULPS       Y8, Y1, Y3
	VROUNDPS     $0, Y3, Y3
	VFNMADD231PS Y9, Y3, Y1
	VFNMADD231PS Y10, Y3, Y1
	VBROADCASTSS exps<>+20(SB), Y2
	COEFFICIENT(24)
	COEFFICIENT(28)
	COEFFICIENT(32)
	COEFFICIENT(36)
	COEFFICIENT(40)
	VFMADD213PS  Y11, Y1, Y2
	VFMADD213PS  Y11, Y1, Y2
	VCVTPS2DQ    Y3, Y3
	VPBROADCASTD exps<>+48(SB), Y1
	VPSRAD       $1, Y3, Y14
	VPSUBD       Y14, Y3, Y3
	VPADDD       Y1, Y14, Y14
	VPADDD       Y1, Y3, Y3
	VPSLLD       $23, Y14, Y14
	VPSLLD       $23, Y3, Y3
	VMULPS       Y14, Y2, Y2
	VMULPS       Y3, Y2, Y2
	VADDPS       Y11, Y2, Y2
	VDIVPS       Y2, Y11, Y1
	CMPQ         AX, $2
	JEQ          sigmoid
	VMULPS       Y1, Y0, Y0
	JMP          write

sigmoid:
	VMOVAPS Y1, Y0

write:
	CMPQ    R15, $8
	JLT     few
	VMOVUPS Y0, (DI)(CX*4)
	ADDQ    $8, CX
	SUBQ    $8, R15
	JGT     column
	JMP     next

few:
	VMOVUPS Y0, (R11)
	LEAQ    (DI)(CX*4), R12
	XORQ    CX, CX

one:
	VMOVSS (R11)(CX*4), X0
	VMOVSS X0, (R12)(CX*4)
	INCQ   CX
	CMPQ   CX, R15
	JLT    one

next:
	ADDQ R8, SI
	ADDQ R8, DI
	ADDQ DX, R13
	ADDQ DX, BX
	DECQ R9
	JNZ  row
	VZEROUPPER
	RET

// func laneSumsY(rounds int, src *float32, rest *[32]float32) float64
//
// CX rounds of 32 numbers left at SI, after which come those at DX; Y0 to Y7 sums, Y8 to Y11 numbers in float64.
TEXT ·laneSumsY(SB), NOSPLIT, $0-32
	MOVQ   rounds+0(FP), CX
	MOVQ   src+8(FP), SI
	MOVQ   rest+16(FP), DX
	VXORPD Y0, Y0, Y0
	VXORPD Y1, Y1, Y1
	VXORPD Y2, Y2, Y2
	VXORPD Y3, Y3, Y3
	VXORPD Y4, Y4, Y4
	VXORPD Y5, Y5, Y5
	VXORPD Y6, Y6, Y6
	VXORPD Y7, Y7, Y7

round:
	DECQ    CX
	JGE     read
	MOVQ    DX, SI
	XORQ    DX, DX
	TESTQ   SI, SI
	JEQ     fold

read:
	VCVTPS2PD (SI), Y8
	VCVTPS2PD 16(SI), Y9
	VCVTPS2PD 32(SI), Y10
	VCVTPS2PD 48(SI), Y11
	VADDPD    Y8, Y0, Y0
	VADDPD    Y9, Y1, Y1
	VADDPD    Y10, Y2, Y2
	VADDPD    Y11, Y3, Y3
	VCVTPS2PD 64(SI), Y8
	VCVTPS2PD 80(SI), Y9
	VCVTPS2PD 96(SI), Y10
	VCVTPS2PD 112(SI), Y11
	VADDPD    Y8, Y4, Y4
	VADDPD    Y9, Y5, Y5
	VADDPD    Y10, Y6, Y6
	VADDPD    Y11, Y7, Y7
	ADDQ      $128, SI
	JMP       round

fold:
	VADDPD       Y4, Y0, Y0
	VADDPD       Y5, Y1, Y1
	VADDPD       Y6, Y2, Y2
	VADDPD       Y7, Y3, Y3
	VADDPD       Y2, Y0, Y0
	VADDPD       Y3, Y1, Y1
	VADDPD       Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPD       X1, X0, X0
	VPERMILPD    $1, X0, X1
	VADDSD       X1, X0, X0
	VMOVSD       X0, ret+24(FP)
	VZEROUPPER
	RET

// func laneSumsZ(n int, src *float32) float64
//
// CX numbers left, SI the source, AX a mask of 32 bits, of which K1 to K4 have eight each; Z0 to Z3 sums, Z4 to Z7 numbers in float64.
TEXT ·laneSumsZ(SB), NOSPLIT, $0-24
	MOVQ   n+0(FP), CX
	MOVQ   src+8(FP), SI
	VXORPD Z0, Z0, Z0
	VXORPD Z1, Z1, Z1
	VXORPD Z2, Z2, Z2
	VXORPD Z3, Z3, Z3
	SUBQ   $32, CX
	JL     rest

round:
	VCVTPS2PD (SI), Z4
	VCVTPS2PD 32(SI), Z5
	VCVTPS2PD 64(SI), Z6
	VCVTPS2PD 96(SI), Z7
	VADDPD    Z4, Z0, Z0
	VADDPD    Z5, Z1, Z1
	VADDPD    Z6, Z2, Z2
	VADDPD    Z7, Z3, Z3
	ADDQ      $128, SI
	SUBQ      $32, CX
	JGE       round

rest:
	ADDQ        $32, CX
	JEQ         fold
	MOVL        $1, AX
	SHLL        CX, AX
	DECL        AX
	KMOVW       AX, K1
	SHRL        $8, AX
	KMOVW       AX, K2
	SHRL        $8, AX
	KMOVW       AX, K3
	SHRL        $8, AX
	KMOVW       AX, K4
	VCVTPS2PD.Z (SI), K1, Z4
	VCVTPS2PD.Z 32(SI), K2, Z5
	VCVTPS2PD.Z 64(SI), K3, Z6
	VCVTPS2PD.Z 96(SI), K4, Z7
	VADDPD      Z4, Z0, Z0
	VADDPD      Z5, Z1, Z1
	VADDPD      Z6, Z2, Z2
	VADDPD      Z7, Z3, Z3

fold:
	VADDPD        Z2, Z0, Z0
	VADDPD        Z3, Z1, Z1
	VADDPD        Z1, Z0, Z0
	VEXTRACTF64X4 $1, Z0, Y1
	VADDPD        Y1, Y0, Y0
	VEXTRACTF128  $1, Y0, X1
	VADDPD        X1, X0, X0
	VPERMILPD     $1, X0, X1
	VADDSD        X1, X0, X0
	VMOVSD        X0, ret+16(FP)
	VZEROUPPER
	RET

// What deinterleaveZ takes of two vectors: their even and their odd elements.
DATA evens<>+0(SB)/4, $0
DATA evens<>+4(SB)/4, $2
DATA evens<>+8(SB)/4, $4
DATA evens<>+12(SB)/4, $6
DATA evens<>+16(SB)/4, $8
DATA evens<>+20(SB)/4, $10
DATA evens<>+24(SB)/4, $12
DATA evens<>+28(SB)/4, $14
DATA evens<>+32(SB)/4, $16
DATA evens<>+36(SB)/4, $18
DATA evens<>+40(SB)/4, $20
DATA evens<>+44(SB)/4, $22
DATA evens<>+48(SB)/4, $24
DATA evens<>+52(SB)/4, $26
DATA evens<>+56(SB)/4, $28
DATA evens<>+60(SB)/4, $30
GLOBL evens<>(SB), RODATA|NOPTR, $64
DATA odds<>+0(SB)/4, $1
DATA odds<>+4(SB)/4, $3
DATA odds<>+8(SB)/4, $5
DATA odds<>+12(SB)/4, $7
DATA odds<>+16(SB)/4, $9
DATA odds<>+20(SB)/4, $11
DATA odds<>+24(SB)/4, $13
DATA odds<>+28(SB)/4, $15
DATA odds<>+32(SB)/4, $17
DATA odds<>+36(SB)/4, $19
DATA odds<>+40(SB)/4, $21
DATA odds<>+44(SB)/4, $23
DATA odds<>+48(SB)/4, $25
DATA odds<>+52(SB)/4, $27
DATA odds<>+56(SB)/4, $29
DATA odds<>+60(SB)/4, $31
GLOBL odds<>(SB), RODATA|NOPTR, $64

// func deinterleaveZ(lines, n int, even, odd *float32, apart int, src *float32, from int)
//
// As deinterleaveX, with R12 elements of a destination left, sixteen at a time; K1 names those of the
// last vector, K2 and K3 their sources. Z0 and Z1 are the sources, Z2 the odd ones, Z4 and Z5 where even and odd ones lie.
TEXT ·deinterleaveZ(SB), NOSPLIT, $0-56
	MOVQ    lines+0(FP), R8
	MOVQ    n+8(FP), R9
	MOVQ    even+16(FP), DI
	MOVQ    odd+24(FP), DX
	MOVQ    apart+32(FP), R10
	MOVQ    src+40(FP), SI
	MOVQ    from+48(FP), R11
	SHLQ    $2, R10
	SHLQ    $2, R11
	VMOVUPS evens<>+0(SB), Z4
	VMOVUPS odds<>+0(SB), Z5
	MOVQ    R9, CX
	ANDQ    $15, CX
	MOVL    $1, AX
	SHLL    CX, AX
	DECL    AX
	KMOVW   AX, K1
	ADDQ    CX, CX
	MOVQ    $1, AX
	SHLQ    CX, AX
	DECQ    AX
	KMOVW   AX, K2
	SHRQ    $16, AX
	KMOVW   AX, K3

line:
	XORQ CX, CX
	MOVQ R9, R12
	SUBQ $16, R12
	JL   last

sixteen:
	VMOVUPS  (SI)(CX*2), Z0
	VMOVUPS  64(SI)(CX*2), Z1
	VMOVAPS  Z0, Z2
	VPERMT2PS Z1, Z4, Z0
	VPERMT2PS Z1, Z5, Z2
	VMOVUPS  Z2, (DX)(CX*1)
	VMOVUPS  Z0, (DI)(CX*1)
	ADDQ     $64, CX
	SUBQ     $16, R12
	JGE      sixteen

last:
	CMPQ      R12, $-16
	JEQ       next
	VMOVUPS.Z (SI)(CX*2), K2, Z0
	VMOVUPS.Z 64(SI)(CX*2), K3, Z1
	VMOVAPS   Z0, Z2
	VPERMT2PS Z1, Z4, Z0
	VPERMT2PS Z1, Z5, Z2
	VMOVUPS   Z2, K1, (DX)(CX*1)
	VMOVUPS   Z0, K1, (DI)(CX*1)

next:
	ADDQ R10, DI
	ADDQ R10, DX
	ADDQ R11, SI
	DECQ R8
	JNZ  line
	VZEROUPPER
	RET
