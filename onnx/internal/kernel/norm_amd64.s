#include "textflag.h"

// DEVIATION adds the squares of four numbers less the mean in Y4 to sums.
#define DEVIATION(at, on, sums) \
	VCVTPS2PD   at(SI), on      \
	VSUBPD      Y4, on, on      \
	VFMADD231PD on, on, sums

// func deviationsY(n int, src *float32, mean float64) float64
//
// AVX2: CX counts n, a multiple of 16, SI the source; Y0 to Y3 sums, Y4 the mean, Y5 to Y8 differences.
TEXT ·deviationsY(SB), NOSPLIT, $0-32
	MOVQ         n+0(FP), CX
	MOVQ         src+8(FP), SI
	VBROADCASTSD mean+16(FP), Y4
	VXORPD       Y0, Y0, Y0
	VXORPD       Y1, Y1, Y1
	VXORPD       Y2, Y2, Y2
	VXORPD       Y3, Y3, Y3

loop:
	DEVIATION(0, Y5, Y0)
	DEVIATION(16, Y6, Y1)
	DEVIATION(32, Y7, Y2)
	DEVIATION(48, Y8, Y3)
	ADDQ         $64, SI
	SUBQ         $16, CX
	JNZ          loop
	VADDPD       Y1, Y0, Y0
	VADDPD       Y3, Y2, Y2
	VADDPD       Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPD       X1, X0, X0
	VUNPCKHPD    X0, X0, X1
	VADDSD       X1, X0, X0
	VMOVSD       X0, ret+24(FP)
	VZEROUPPER
	RET

// NORMALISED sets low, a half of to, to four numbers less the mean in Y4, times the factor in Y5.
#define NORMALISED(at, on, low) \
	VCVTPS2PD  at(SI)(AX*4), on \
	VSUBPD     Y4, on, on       \
	VMULPD     Y5, on, on       \
	VCVTPD2PSY on, low

// func normaliseY(n int, dst, src, scale, bias *float32, mean, factor float64)
//
// AVX2: CX is n, a multiple of 8, AX the place, DI the results, SI the source, R8 scales, R9 biases or nil; Y4 and Y5 mean and factor.
TEXT ·normaliseY(SB), NOSPLIT, $0-56
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         src+16(FP), SI
	MOVQ         scale+24(FP), R8
	MOVQ         bias+32(FP), R9
	VBROADCASTSD mean+40(FP), Y4
	VBROADCASTSD factor+48(FP), Y5
	XORQ         AX, AX

loop:
	NORMALISED(0, Y0, X0)
	NORMALISED(16, Y1, X1)
	VINSERTF128 $1, X1, Y0, Y0
	VMULPS      (R8)(AX*4), Y0, Y0
	TESTQ       R9, R9
	JEQ         write
	VADDPS      (R9)(AX*4), Y0, Y0

write:
	VMOVUPS Y0, (DI)(AX*4)
	ADDQ    $8, AX
	CMPQ    AX, CX
	JL      loop
	VZEROUPPER
	RET

// EIGHTS reads sixteen numbers of the line, in float64, and takes a register from them.
#define EIGHTS(from) \
	VCVTPS2PD (SI)(CX*4), Z7   \
	VCVTPS2PD 32(SI)(CX*4), Z8 \
	VSUBPD    from, Z7, Z7     \
	VSUBPD    from, Z8, Z8

// LASTEIGHTS is EIGHTS of a line's last numbers, with zeros for those that are not there.
#define LASTEIGHTS(from) \
	VCVTPS2PD.Z (SI)(CX*4), K1, Z7   \
	VCVTPS2PD.Z 32(SI)(CX*4), K2, Z8 \
	VSUBPD.Z    from, Z7, K1, Z7     \
	VSUBPD.Z    from, Z8, K2, Z8

#define SUMS \
	VADDPD      Z7, Z0, Z0 \
	VADDPD      Z8, Z1, Z1 \
	VFMADD231PD Z7, Z7, Z2 \
	VFMADD231PD Z8, Z8, Z3

#define ROUNDED \
	VMULPD       Z5, Z7, Z7     \
	VMULPD       Z5, Z8, Z8     \
	VCVTPD2PS    Z7, Y7         \
	VCVTPD2PS    Z8, Y8         \
	VINSERTF64X4 $1, Y8, Z7, Z7

// FOLDED sets all, a Z register, to the sum of its lanes in its lowest one; half and quarter are the names of its parts.
#define FOLDED(all, half, quarter) \
	VEXTRACTF64X4 $1, all, Y7            \
	VADDPD        Y7, half, half         \
	VEXTRACTF128  $1, half, X7           \
	VADDPD        X7, quarter, quarter   \
	VPERMILPD     $1, quarter, X7        \
	VADDSD        X7, quarter, quarter

// func normLinesZ(l *normLines)
//
// SI and DI lines, R8 scales and R11 biases, R9 lines left, R10 bytes of a line, CX the column, R12 that of a line's last vector, of which K3
// names the numbers and K1 and K2 those of its halves; Z0 and Z1 sums less the first number, which is Z6, Z2 and Z3 sums of squares, Z4
// the mean, Z5 the factor, Z7 and Z8 numbers, X18 to X20 one of n, epsilon and 1. A sum of squares loses no more than a factor of n by
// the difference of the mean from the first number.
TEXT ·normLinesZ(SB), NOSPLIT, $0-8
	MOVQ  l+0(FP), AX
	MOVQ  0(AX), DI
	MOVQ  8(AX), SI
	MOVQ  16(AX), R8
	MOVQ  24(AX), R11
	MOVQ  32(AX), R9
	MOVQ  40(AX), R10
	VMOVSD 48(AX), X18
	VMOVSD 56(AX), X19
	VMOVSD 64(AX), X20
	LEAQ  -1(R10), R12
	MOVQ  R12, CX
	ANDQ  $15, CX
	MOVL  $2, AX
	SHLL  CX, AX
	DECL  AX
	KMOVW AX, K3
	KMOVW AX, K1
	SHRL  $8, AX
	KMOVW AX, K2
	ANDQ  $-16, R12
	SHLQ  $2, R10

line:
	VBROADCASTSS (SI), Y6
	VCVTPS2PD    Y6, Z6
	VXORPD       Z0, Z0, Z0
	VXORPD       Z1, Z1, Z1
	VXORPD       Z2, Z2, Z2
	VXORPD       Z3, Z3, Z3
	XORQ         CX, CX
	CMPQ         CX, R12
	JGE          last

sums:
	EIGHTS(Z6)
	SUMS
	ADDQ $16, CX
	CMPQ CX, R12
	JLT  sums

last:
	LASTEIGHTS(Z6)
	SUMS
	VADDPD       Z1, Z0, Z0
	VADDPD       Z3, Z2, Z2
	FOLDED(Z0, Y0, X0)
	FOLDED(Z2, Y2, X2)
	VMULSD       X18, X0, X0
	VMULSD       X18, X2, X2
	VFNMADD231SD X0, X0, X2
	VADDSD       X19, X2, X2
	VSQRTSD      X2, X2, X2
	VDIVSD       X2, X20, X2
	VADDSD       X6, X0, X0
	VBROADCASTSD X0, Z4
	VBROADCASTSD X2, Z5
	XORQ         CX, CX
	CMPQ         CX, R12
	JGE          end

normal:
	EIGHTS(Z4)
	ROUNDED
	VMULPS  (R8)(CX*4), Z7, Z7
	TESTQ   R11, R11
	JEQ     write
	VADDPS  (R11)(CX*4), Z7, Z7

write:
	VMOVUPS Z7, (DI)(CX*4)
	ADDQ    $16, CX
	CMPQ    CX, R12
	JLT     normal

end:
	LASTEIGHTS(Z4)
	ROUNDED
	VMOVUPS.Z (R8)(CX*4), K3, Z8
	VMULPS    Z8, Z7, Z7
	TESTQ     R11, R11
	JEQ       writelast
	VMOVUPS.Z (R11)(CX*4), K3, Z8
	VADDPS    Z8, Z7, Z7

writelast:
	VMOVUPS Z7, K3, (DI)(CX*4)
	ADDQ    R10, SI
	ADDQ    R10, DI
	DECQ    R9
	JNZ     line
	VZEROUPPER
	RET

// PAIRED loads four numbers of a row at SI into the low half of a register, and those of the fourth row after it into the high one.
#define PAIRED(row, fourth, x, y) \
	VMOVUPS     row, x          \
	VINSERTF128 $1, fourth, y, y

// COLUMNS4 writes four columns of eight rows, whose numbers begin at the place at, to the next four rows at DI.
#define COLUMNS4(at) \
	PAIRED(at(SI), at(BX), X0, Y0)                   \
	PAIRED(at(SI)(R8*1), at(BX)(R8*1), X1, Y1)       \
	PAIRED(at(SI)(R8*2), at(BX)(R8*2), X2, Y2)       \
	PAIRED(at(SI)(R9*1), at(BX)(R9*1), X3, Y3)       \
	VUNPCKLPS   Y1, Y0, Y4      \
	VUNPCKHPS   Y1, Y0, Y5      \
	VUNPCKLPS   Y3, Y2, Y6      \
	VUNPCKHPS   Y3, Y2, Y7      \
	VUNPCKLPD   Y6, Y4, Y0      \
	VUNPCKHPD   Y6, Y4, Y1      \
	VUNPCKLPD   Y7, Y5, Y2      \
	VUNPCKHPD   Y7, Y5, Y3      \
	VMOVUPS     Y0, (DI)        \
	VMOVUPS     Y1, (DI)(R10*1) \
	VMOVUPS     Y2, (DI)(R10*2) \
	VMOVUPS     Y3, (DI)(R11*1) \
	LEAQ        (DI)(R10*4), DI

// func turnY(n int, dst *float32, ds int, src *float32, ss int)
//
// AVX2: CX counts n, a multiple of 8, DI the results, whose rows lie R10 bytes apart, three times which is R11; SI the first of eight rows
// of the source, which lie R8 apart, three times which is R9, BX the fifth.
TEXT ·turnY(SB), NOSPLIT, $0-40
	MOVQ n+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ ds+16(FP), R10
	MOVQ src+24(FP), SI
	MOVQ ss+32(FP), R8
	SHLQ $2, R10
	SHLQ $2, R8
	LEAQ (R10)(R10*2), R11
	LEAQ (R8)(R8*2), R9
	LEAQ (SI)(R8*4), BX

loop:
	COLUMNS4(0)
	COLUMNS4(16)
	ADDQ $32, SI
	ADDQ $32, BX
	SUBQ $8, CX
	JNZ  loop
	VZEROUPPER
	RET
