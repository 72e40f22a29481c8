#include "textflag.h"

// The functions of even.go on numbers of float64 that they replace, operation by operation, so that the bits are theirs: four a vector, and
// two vectors beside each other. CX counts numbers, of which there are a multiple of eight, DI is at them.

DATA evens64<>+0(SB)/8, $110.0
DATA evens64<>+8(SB)/8, $-110.0
DATA evens64<>+16(SB)/8, $1.44269504088896340735992468100189214
DATA evens64<>+24(SB)/8, $6755399441055744.0
DATA evens64<>+32(SB)/8, $6.93147180369123816490e-01
DATA evens64<>+40(SB)/8, $1.90821492927058770002e-10
DATA evens64<>+48(SB)/8, $1023
DATA evens64<>+56(SB)/8, $1.0
DATA evens64<>+64(SB)/8, $0x8000000000000000
DATA evens64<>+72(SB)/8, $4.0
DATA evens64<>+80(SB)/8, $-4.0
DATA evens64<>+88(SB)/8, $0.125
DATA evens64<>+96(SB)/8, $-1.0
DATA evens64<>+104(SB)/8, $6.0
DATA evens64<>+112(SB)/8, $0.5
GLOBL evens64<>(SB), RODATA|NOPTR, $120

// POWER adds the next coefficient of the series at DX to both vectors' sums.
#define POWER(at) \
	VBROADCASTSD at(DX), Y14 \
	VMULPD       Y0, Y4, Y4  \
	VMULPD       Y1, Y5, Y5  \
	VADDPD       Y14, Y4, Y4 \
	VADDPD       Y14, Y5, Y5

// PARTS has the work of evenExp for the vector x: its whole multiple of ln 2 in shifted, of which s is made, and the rest in x.
#define PARTS(x, shifted, k, room) \
	VMAXPD x, Y9, x              \
	VMINPD x, Y8, x              \
	VMULPD Y10, x, shifted       \
	VADDPD Y11, shifted, shifted \
	VSUBPD Y11, shifted, k       \
	VMULPD Y12, k, room          \
	VSUBPD room, x, x            \
	VMULPD Y13, k, room          \
	VSUBPD room, x, x            \
	VPADDQ Y14, shifted, shifted \
	VPSLLQ $52, shifted, shifted

// func evenExpY(n int, x *float64, series *[12]float64, sigmoid bool)
//
// Y0 and Y1 are x, then the rests, Y2 and Y3 powers of two, Y4 and Y5 sums, Y6 and Y7 on the way, Y8 to Y13 constants, Y14 a coefficient,
// Y15 is 1. BX is 0 for exponentials.
TEXT ·evenExpY(SB), NOSPLIT, $0-25
	MOVQ         n+0(FP), CX
	MOVQ         x+8(FP), DI
	MOVQ         series+16(FP), DX
	MOVBLZX      sigmoid+24(FP), BX
	VBROADCASTSD evens64<>+0(SB), Y8
	VBROADCASTSD evens64<>+8(SB), Y9
	VBROADCASTSD evens64<>+16(SB), Y10
	VBROADCASTSD evens64<>+24(SB), Y11
	VBROADCASTSD evens64<>+32(SB), Y12
	VBROADCASTSD evens64<>+40(SB), Y13
	VBROADCASTSD evens64<>+56(SB), Y15

loop:
	VMOVUPD      (DI), Y0
	VMOVUPD      32(DI), Y1
	TESTQ        BX, BX
	JEQ          parts
	VBROADCASTSD evens64<>+64(SB), Y14
	VXORPD       Y14, Y0, Y0
	VXORPD       Y14, Y1, Y1

parts:
	VBROADCASTSD evens64<>+48(SB), Y14
	PARTS(Y0, Y2, Y4, Y6)
	PARTS(Y1, Y3, Y5, Y7)
	VBROADCASTSD 88(DX), Y4
	VMOVAPD      Y4, Y5
	POWER(80)
	POWER(72)
	POWER(64)
	POWER(56)
	POWER(48)
	POWER(40)
	POWER(32)
	POWER(24)
	POWER(16)
	POWER(8)
	POWER(0)
	VMULPD       Y0, Y4, Y4
	VMULPD       Y1, Y5, Y5
	VMULPD       Y2, Y4, Y4
	VMULPD       Y3, Y5, Y5
	VADDPD       Y2, Y4, Y4
	VADDPD       Y3, Y5, Y5
	TESTQ        BX, BX
	JEQ          write
	VADDPD       Y15, Y4, Y4
	VADDPD       Y15, Y5, Y5
	VDIVPD       Y4, Y15, Y4
	VDIVPD       Y5, Y15, Y5

write:
	VMOVUPD Y4, (DI)
	VMOVUPD Y5, 32(DI)
	ADDQ    $64, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// CLENSHAW takes the next coefficient, in Y14: before = 2 t b - before + coefficient, where Y12 and Y13 are 2 t.
#define CLENSHAW(b0, b1, before0, before1) \
	VBROADCASTSD (DX)(AX*8), Y14         \
	VMULPD       Y12, b0, Y10            \
	VMULPD       Y13, b1, Y11            \
	VSUBPD       before0, Y10, before0   \
	VSUBPD       before1, Y11, before1   \
	VADDPD       Y14, before0, before0   \
	VADDPD       Y14, before1, before1   \
	DECQ         AX

// func evenErfY(n int, x, series *float64, last int)
//
// Y0 and Y1 are x, Y2 and Y3 t, Y4 to Y7 the recursion's two numbers in turn, Y8, Y9 and Y15 bounds; AX counts coefficients, of which the
// last is an odd one.
TEXT ·evenErfY(SB), NOSPLIT, $0-32
	MOVQ         n+0(FP), CX
	MOVQ         x+8(FP), DI
	MOVQ         series+16(FP), DX
	VBROADCASTSD evens64<>+72(SB), Y8
	VBROADCASTSD evens64<>+80(SB), Y9
	VBROADCASTSD evens64<>+56(SB), Y15

loop:
	VMOVUPD      (DI), Y0
	VMOVUPD      32(DI), Y1
	VMAXPD       Y0, Y9, Y0
	VMAXPD       Y1, Y9, Y1
	VMINPD       Y0, Y8, Y0
	VMINPD       Y1, Y8, Y1
	VBROADCASTSD evens64<>+88(SB), Y14
	VMULPD       Y0, Y0, Y2
	VMULPD       Y1, Y1, Y3
	VMULPD       Y14, Y2, Y2
	VMULPD       Y14, Y3, Y3
	VSUBPD       Y15, Y2, Y2
	VSUBPD       Y15, Y3, Y3
	VADDPD       Y2, Y2, Y12
	VADDPD       Y3, Y3, Y13
	VXORPD       Y4, Y4, Y4
	VXORPD       Y5, Y5, Y5
	VXORPD       Y6, Y6, Y6
	VXORPD       Y7, Y7, Y7
	MOVQ         last+24(FP), AX

step:
	CLENSHAW(Y4, Y5, Y6, Y7)
	TESTQ        AX, AX
	JEQ          end
	CLENSHAW(Y6, Y7, Y4, Y5)
	JMP          step

end:
	VBROADCASTSD (DX), Y14
	VMULPD       Y2, Y6, Y10
	VMULPD       Y3, Y7, Y11
	VSUBPD       Y4, Y10, Y10
	VSUBPD       Y5, Y11, Y11
	VADDPD       Y14, Y10, Y10
	VADDPD       Y14, Y11, Y11
	VMULPD       Y0, Y10, Y10
	VMULPD       Y1, Y11, Y11
	VBROADCASTSD evens64<>+96(SB), Y14
	VMAXPD       Y10, Y14, Y10
	VMAXPD       Y11, Y14, Y11
	VMINPD       Y10, Y15, Y10
	VMINPD       Y11, Y15, Y11
	VMOVUPD      Y10, (DI)
	VMOVUPD      Y11, 32(DI)
	ADDQ         $64, DI
	SUBQ         $8, CX
	JNZ          loop
	VZEROUPPER
	RET

// func evenHardSwishY(n int, dst, x *float32)
//
// Y0 and Y1 are x in float64, Y2 and Y3 the factors, Y12 to Y15 are 6, 1/2, 0 and 1. NaN stays, as
// whatever bounds make of it is multiplied by x.
TEXT ·evenHardSwishY(SB), NOSPLIT, $0-24
	MOVQ         n+0(FP), CX
	MOVQ         dst+8(FP), DI
	MOVQ         x+16(FP), SI
	VBROADCASTSD evens64<>+104(SB), Y12
	VBROADCASTSD evens64<>+112(SB), Y13
	VXORPD       Y14, Y14, Y14
	VBROADCASTSD evens64<>+56(SB), Y15

loop:
	VCVTPS2PD  (SI), Y0
	VCVTPS2PD  16(SI), Y1
	VDIVPD     Y12, Y0, Y2
	VDIVPD     Y12, Y1, Y3
	VADDPD     Y13, Y2, Y2
	VADDPD     Y13, Y3, Y3
	VMINPD     Y2, Y15, Y2
	VMINPD     Y3, Y15, Y3
	VMAXPD     Y2, Y14, Y2
	VMAXPD     Y3, Y14, Y3
	VMULPD     Y2, Y0, Y2
	VMULPD     Y3, Y1, Y3
	VCVTPD2PSY Y2, X2
	VCVTPD2PSY Y3, X3
	VMOVUPS    X2, (DI)
	VMOVUPS    X3, 16(DI)
	ADDQ       $32, SI
	ADDQ       $32, DI
	SUBQ       $8, CX
	JNZ        loop
	VZEROUPPER
	RET

// func doublesY(n int, dst *float64, src *float32)
TEXT ·doublesY(SB), NOSPLIT, $0-24
	MOVQ n+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ src+16(FP), SI

loop:
	VCVTPS2PD (SI), Y0
	VCVTPS2PD 16(SI), Y1
	VMOVUPD   Y0, (DI)
	VMOVUPD   Y1, 32(DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	SUBQ      $8, CX
	JNZ       loop
	VZEROUPPER
	RET

// func singlesY(n int, dst *float32, src *float64)
TEXT ·singlesY(SB), NOSPLIT, $0-24
	MOVQ n+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ src+16(FP), SI

loop:
	VCVTPD2PSY (SI), X0
	VCVTPD2PSY 32(SI), X1
	VMOVUPS    X0, (DI)
	VMOVUPS    X1, 16(DI)
	ADDQ       $64, SI
	ADDQ       $32, DI
	SUBQ       $8, CX
	JNZ        loop
	VZEROUPPER
	RET
