#include "textflag.h"

// A window is swept down the lines of a plane. Each line is read once, and every output line that it belongs to has its sums in a
// register, Z0 the one that ends next: a tap of the line is one permutation of two vectors of it and a product for each of those
// registers. Sums run over the taps in their order.
//
// SI and BX the two vectors of a line, R8 the bytes to the next, CX lines left, R11 lines that end no output, DX outputs that end after
// the last line, DI outputs (AX the second plane's), R9 the bytes to the next, R10 weights; Z5 where sums start, Z6 to Z9 scale, shift
// and bounds, Z12 to Z16 indices of the taps, Z20, Z21 and Z25 to Z31 weights of 3x3.

// lanesInTurn are the elements of two vectors in turn, lanesApart the even lanes of one and then the odd ones.
DATA lanesInTurn<>+0(SB)/8, $0x0000001000000000
DATA lanesInTurn<>+8(SB)/8, $0x0000001100000001
DATA lanesInTurn<>+16(SB)/8, $0x0000001200000002
DATA lanesInTurn<>+24(SB)/8, $0x0000001300000003
DATA lanesInTurn<>+32(SB)/8, $0x0000001400000004
DATA lanesInTurn<>+40(SB)/8, $0x0000001500000005
DATA lanesInTurn<>+48(SB)/8, $0x0000001600000006
DATA lanesInTurn<>+56(SB)/8, $0x0000001700000007
DATA lanesInTurn<>+64(SB)/8, $0x0000001800000008
DATA lanesInTurn<>+72(SB)/8, $0x0000001900000009
DATA lanesInTurn<>+80(SB)/8, $0x0000001a0000000a
DATA lanesInTurn<>+88(SB)/8, $0x0000001b0000000b
DATA lanesInTurn<>+96(SB)/8, $0x0000001c0000000c
DATA lanesInTurn<>+104(SB)/8, $0x0000001d0000000d
DATA lanesInTurn<>+112(SB)/8, $0x0000001e0000000e
DATA lanesInTurn<>+120(SB)/8, $0x0000001f0000000f
GLOBL lanesInTurn<>(SB), RODATA|NOPTR, $128

DATA lanesApart<>+0(SB)/8, $0x0000000200000000
DATA lanesApart<>+8(SB)/8, $0x0000000600000004
DATA lanesApart<>+16(SB)/8, $0x0000000a00000008
DATA lanesApart<>+24(SB)/8, $0x0000000e0000000c
DATA lanesApart<>+32(SB)/8, $0x0000000300000001
DATA lanesApart<>+40(SB)/8, $0x0000000700000005
DATA lanesApart<>+48(SB)/8, $0x0000000b00000009
DATA lanesApart<>+56(SB)/8, $0x0000000f0000000d
GLOBL lanesApart<>(SB), RODATA|NOPTR, $64

// BEGIN reads the arguments for a plane, which REST moves to the next one. K1 and K2 name the columns of both vectors, K3 the outputs.
#define BEGIN \
plane: \
	MOVQ         a+0(FP), AX     \
	MOVQ         0(AX), SI       \
	MOVQ         8(AX), BX       \
	ADDQ         16(AX), SI      \
	ADDQ         24(AX), BX      \
	MOVQ         32(AX), R8      \
	MOVQ         40(AX), DI      \
	MOVQ         56(AX), R9      \
	MOVQ         64(AX), R11     \
	MOVQ         72(AX), CX      \
	MOVQ         80(AX), DX      \
	MOVQ         96(AX), R10     \
	MOVQ         112(AX), R12     \
	VBROADCASTSS (R12), Z5       \
	VBROADCASTSS 4(R12), Z6      \
	VBROADCASTSS 8(R12), Z7      \
	VBROADCASTSS 12(R12), Z8     \
	VBROADCASTSS 16(R12), Z9     \
	MOVQ         128(AX), R12    \
	VMOVUPS      (R12), Z12      \
	VMOVUPS      64(R12), Z13    \
	VMOVUPS      128(R12), Z14   \
	VMOVUPS      192(R12), Z15   \
	VMOVUPS      256(R12), Z16   \
	KMOVW        144(AX), K1     \
	KMOVW        146(AX), K2     \
	KMOVW        148(AX), K3     \
	MOVQ         88(AX), R13     \
	VMOVAPS      Z5, Z0          \
	VMOVAPS      Z5, Z1          \
	VMOVAPS      Z5, Z2          \
	VMOVAPS      Z5, Z3          \
	VMOVAPS      Z5, Z4

// BEGINTWO is BEGIN for two planes, whose lanes alternate: K1 names the columns of a line, K2 the outputs of a plane, K3 to K7 the outputs
// that each tap of a line has. weights lays out the weights of both planes in turn, at R10 afterwards. Z24 has the lanes of the first plane
// and then those of the second.
#define BEGINTWO(weights) \
	BEGIN                                     \
	MOVQ         104(AX), R12                 \
	MOVQ         136(AX), R13                 \
	MOVL         $0x1FF, R14                  \
	KMOVW        R14, K7                      \
	VMOVUPS      lanesInTurn<>(SB), Z21       \
	VMOVUPS      lanesInTurn<>+64(SB), Z22    \
	VMOVUPS      lanesApart<>(SB), Z24        \
	weights                                   \
	MOVL         $0xAAAA, R14                 \
	KMOVW        R14, K7                      \
	MOVQ         120(AX), R12                 \
	VBROADCASTSS (R12), K7, Z5                \
	VBROADCASTSS 4(R12), K7, Z6               \
	VBROADCASTSS 8(R12), K7, Z7               \
	VMOVAPS      Z5, Z0                       \
	VMOVAPS      Z5, Z1                       \
	VMOVAPS      Z5, Z2                       \
	VMOVAPS      Z5, Z3                       \
	VMOVAPS      Z5, Z4                       \
	KMOVW        150(AX), K4                  \
	KMOVW        152(AX), K5                  \
	KMOVW        154(AX), K6                  \
	KMOVW        156(AX), K7                  \
	MOVQ         136(AX), R10                 \
	MOVQ         88(AX), R13                  \
	MOVQ         48(AX), AX

// INTURN writes 16 or fewer weights of two planes in turn.
#define INTURN(one, two, at) \
	VMOVAPS   Z21, Z23           \
	VPERMI2PS two, one, Z23      \
	VMOVUPS   Z23, at(R13)       \
	VMOVAPS   Z22, Z23           \
	VPERMI2PS two, one, Z23      \
	VMOVUPS   Z23, (64+at)(R13)

#define WEIGHTS9 \
	VMOVUPS.Z (R10), K7, Z17   \
	VMOVUPS.Z (R12), K7, Z18   \
	INTURN(Z17, Z18, 0)

#define WEIGHTS25 \
	VMOVUPS   (R10), Z17         \
	VMOVUPS   (R12), Z18         \
	INTURN(Z17, Z18, 0)          \
	VMOVUPS.Z 64(R10), K7, Z17   \
	VMOVUPS.Z 64(R12), K7, Z18   \
	INTURN(Z17, Z18, 128)

// HOLD9 keeps the nine weights of a window in registers.
#define HOLD9(broadcast, bytes) \
	broadcast (0*bytes)(R10), Z25 \
	broadcast (1*bytes)(R10), Z26 \
	broadcast (2*bytes)(R10), Z27 \
	broadcast (3*bytes)(R10), Z28 \
	broadcast (4*bytes)(R10), Z29 \
	broadcast (5*bytes)(R10), Z30 \
	broadcast (6*bytes)(R10), Z31 \
	broadcast (7*bytes)(R10), Z20 \
	broadcast (8*bytes)(R10), Z21

#define READ \
	VMOVUPS.Z (SI), K1, Z10      \
	VMOVUPS.Z (BX), K2, Z11      \
	PREFETCHT0 (SI)(R8*8)        \
	ADDQ      R8, SI             \
	ADDQ      R8, BX

// READ3 loads a line for each tap of 3x3 with a stride of one, which K4 to K6 name the columns of.
#define READ3 \
	VMOVUPS.Z (SI), K4, Z17      \
	VMOVUPS.Z 4(SI), K5, Z18     \
	VMOVUPS.Z 8(SI), K6, Z19     \
	PREFETCHT0 (SI)(R8*8)        \
	ADDQ      R8, SI

#define TAPMASKS \
	KMOVW 150(AX), K4 \
	KMOVW 152(AX), K5 \
	KMOVW 154(AX), K6

#define READTWO \
	VMOVUPS.Z (SI), K1, Z10      \
	VMOVUPS.Z (BX), K1, Z11      \
	ADDQ      R8, SI             \
	ADDQ      R8, BX

#define PICK(index, mask, to) \
	VMOVAPS   index, to          \
	VPERMI2PS Z11, Z10, to

#define PICKTWO(index, mask, to) \
	VMOVAPS     index, to         \
	VPERMI2PS.Z Z11, Z10, mask, to

#define ADD(tap, x, to) VFMADD231PS.BCST (4*(tap))(R10), x, to

#define ADDTWO(tap, x, to) \
	VBROADCASTSD (8*(tap))(R10), Z23 \
	VFMADD231PS  Z23, x, to

// The lines of a window, of which DOWN is where the stride is one, EVEN and ODD where it is two.

#define ADD5(add, tap, x) \
	add(20+tap, x, Z0) \
	add(15+tap, x, Z1) \
	add(10+tap, x, Z2) \
	add(5+tap, x, Z3)  \
	add(0+tap, x, Z4)

#define DOWN5(pick, add) \
	pick(Z12, K3, Z17)  \
	ADD5(add, 0, Z17)   \
	pick(Z13, K4, Z18)  \
	ADD5(add, 1, Z18)   \
	pick(Z14, K5, Z19)  \
	ADD5(add, 2, Z19)   \
	pick(Z15, K6, Z20)  \
	ADD5(add, 3, Z20)   \
	pick(Z16, K7, Z21)  \
	ADD5(add, 4, Z21)

// The weights of 3x3 are those of HOLD9. LOADED3 is DOWN3 for taps that READ3 has loaded.

#define PICK3(pick) \
	pick(Z12, K3, Z17) \
	pick(Z13, K4, Z18) \
	pick(Z14, K5, Z19)

#define LOADED3(pick, add) \
	VFMADD231PS Z31, Z17, Z0 \
	VFMADD231PS Z28, Z17, Z1 \
	VFMADD231PS Z25, Z17, Z2 \
	VFMADD231PS Z20, Z18, Z0 \
	VFMADD231PS Z29, Z18, Z1 \
	VFMADD231PS Z26, Z18, Z2 \
	VFMADD231PS Z21, Z19, Z0 \
	VFMADD231PS Z30, Z19, Z1 \
	VFMADD231PS Z27, Z19, Z2

#define DOWN3(pick, add) \
	PICK3(pick) \
	LOADED3(pick, add)

// The sums of 7x7 are Z0 to Z4, Z25 and Z26. Its stride is one, so that a tap's columns are next to each other in both vectors.

#define ADD7(tap, x) \
	ADD(42+tap, x, Z0)  \
	ADD(35+tap, x, Z1)  \
	ADD(28+tap, x, Z2)  \
	ADD(21+tap, x, Z3)  \
	ADD(14+tap, x, Z4)  \
	ADD(7+tap, x, Z25)  \
	ADD(0+tap, x, Z26)

#define DOWN7(pick, add) \
	VALIGND $1, Z10, Z11, Z17 \
	VALIGND $2, Z10, Z11, Z18 \
	VALIGND $3, Z10, Z11, Z19 \
	VALIGND $4, Z10, Z11, Z20 \
	VALIGND $5, Z10, Z11, Z21 \
	VALIGND $6, Z10, Z11, Z23 \
	ADD7(0, Z10) \
	ADD7(1, Z17) \
	ADD7(2, Z18) \
	ADD7(3, Z19) \
	ADD7(4, Z20) \
	ADD7(5, Z21) \
	ADD7(6, Z23)

#define EVEN5(pick, add) \
	pick(Z12, K3, Z17) \
	add(20, Z17, Z0)   \
	add(10, Z17, Z1)   \
	add(0, Z17, Z2)    \
	pick(Z13, K4, Z18) \
	add(21, Z18, Z0)   \
	add(11, Z18, Z1)   \
	add(1, Z18, Z2)    \
	pick(Z14, K5, Z19) \
	add(22, Z19, Z0)   \
	add(12, Z19, Z1)   \
	add(2, Z19, Z2)    \
	pick(Z15, K6, Z20) \
	add(23, Z20, Z0)   \
	add(13, Z20, Z1)   \
	add(3, Z20, Z2)    \
	pick(Z16, K7, Z21) \
	add(24, Z21, Z0)   \
	add(14, Z21, Z1)   \
	add(4, Z21, Z2)

#define ODD5(pick, add) \
	pick(Z12, K3, Z17) \
	add(15, Z17, Z0)   \
	add(5, Z17, Z1)    \
	pick(Z13, K4, Z18) \
	add(16, Z18, Z0)   \
	add(6, Z18, Z1)    \
	pick(Z14, K5, Z19) \
	add(17, Z19, Z0)   \
	add(7, Z19, Z1)    \
	pick(Z15, K6, Z20) \
	add(18, Z20, Z0)   \
	add(8, Z20, Z1)    \
	pick(Z16, K7, Z21) \
	add(19, Z21, Z0)   \
	add(9, Z21, Z1)

#define EVEN3(pick, add) \
	PICK3(pick) \
	VFMADD231PS Z31, Z17, Z0 \
	VFMADD231PS Z25, Z17, Z1 \
	VFMADD231PS Z20, Z18, Z0 \
	VFMADD231PS Z26, Z18, Z1 \
	VFMADD231PS Z21, Z19, Z0 \
	VFMADD231PS Z27, Z19, Z1

#define ODD3(pick, add) \
	PICK3(pick) \
	VFMADD231PS Z28, Z17, Z0 \
	VFMADD231PS Z29, Z18, Z0 \
	VFMADD231PS Z30, Z19, Z0

// TURN7 to TURN2 move the sums of that many lines of outputs to the register before, and begin the last.

#define TURN7 \
	VMOVAPS Z1, Z0   \
	VMOVAPS Z2, Z1   \
	VMOVAPS Z3, Z2   \
	VMOVAPS Z4, Z3   \
	VMOVAPS Z25, Z4  \
	VMOVAPS Z26, Z25 \
	VMOVAPS Z5, Z26

#define TURN5 \
	VMOVAPS Z1, Z0 \
	VMOVAPS Z2, Z1 \
	VMOVAPS Z3, Z2 \
	VMOVAPS Z4, Z3 \
	VMOVAPS Z5, Z4

#define TURN3 \
	VMOVAPS Z1, Z0 \
	VMOVAPS Z2, Z1 \
	VMOVAPS Z5, Z2

#define TURN2 \
	VMOVAPS Z1, Z0 \
	VMOVAPS Z5, Z1

// FINISH scales, shifts and bounds the sums that are done. WRITEPLAIN is WRITE for sums that are neither scaled nor shifted.
#define FINISH \
	VMULPS Z6, Z0, Z22     \
	VADDPS Z7, Z22, Z22    \
	VMAXPS Z22, Z8, Z22    \
	VMINPS Z22, Z9, Z22

#define WRITE \
	FINISH                   \
	VMOVUPS Z22, K3, (DI)    \
	ADDQ    R9, DI

#define WRITEPLAIN \
	VMAXPS  Z0, Z8, Z22      \
	VMINPS  Z22, Z9, Z22     \
	VMOVUPS Z22, K3, (DI)    \
	ADDQ    R9, DI

#define WRITETWO \
	FINISH                       \
	VPERMPS       Z22, Z24, Z22  \
	VMOVUPS       Z22, K2, (DI)  \
	VEXTRACTF64X4 $1, Z22, Y22   \
	VMOVUPS       Z22, K2, (AX)  \
	ADDQ          R9, DI         \
	ADDQ          R9, AX

#define REST(write, turn) \
rest: \
	DECQ DX      \
	JMI  done    \
	write        \
	turn         \
	JMP  rest    \
done: \
	MOVQ  a+0(FP), AX     \
	DECQ  160(AX)         \
	JZ    end             \
	MOVQ  168(AX), R12    \
	ADDQ  R12, 0(AX)      \
	ADDQ  R12, 8(AX)      \
	MOVQ  176(AX), R12    \
	ADDQ  R12, 40(AX)     \
	ADDQ  R12, 48(AX)     \
	MOVQ  184(AX), R12    \
	ADDQ  R12, 96(AX)     \
	ADDQ  R12, 104(AX)    \
	MOVQ  192(AX), R12    \
	ADDQ  R12, 112(AX)    \
	ADDQ  R12, 120(AX)    \
	JMP   plane           \
end: \
	VZEROUPPER   \
	RET

#define ONEDOWN(down, pick, add, read, write, turn) \
line: \
	read            \
	down(pick, add) \
	DECQ R11        \
	JPL  none       \
	write           \
none: \
	turn            \
	DECQ CX         \
	JNZ  line       \
	REST(write, turn)

#define TWODOWN(even, odd, pick, add, read, write, turn) \
	TESTQ R13, R13  \
	JNE   second    \
first: \
	read            \
	even(pick, add) \
	DECQ R11        \
	JPL  none       \
	write           \
none: \
	turn            \
	DECQ CX         \
	JZ   rest       \
second: \
	read            \
	odd(pick, add)  \
	DECQ CX         \
	JNZ  first      \
	REST(write, turn)

// func sweep3(a *sweep)
TEXT ·sweep3(SB), NOSPLIT, $0-8
	BEGIN
	HOLD9(VBROADCASTSS, 4)
	TAPMASKS
	ONEDOWN(LOADED3, PICK, ADD, READ3, WRITE, TURN3)

// func sweep5(a *sweep)
TEXT ·sweep5(SB), NOSPLIT, $0-8
	BEGIN
	ONEDOWN(DOWN5, PICK, ADD, READ, WRITE, TURN5)

// func sweep7(a *sweep)
TEXT ·sweep7(SB), NOSPLIT, $0-8
	BEGIN
	VMOVAPS Z5, Z25
	VMOVAPS Z5, Z26
	ONEDOWN(DOWN7, PICK, ADD, READ, WRITE, TURN7)

// func sweep3by2(a *sweep)
TEXT ·sweep3by2(SB), NOSPLIT, $0-8
	BEGIN
	HOLD9(VBROADCASTSS, 4)
	TWODOWN(EVEN3, ODD3, PICK, ADD, READ, WRITE, TURN2)

// func sweep5by2(a *sweep)
TEXT ·sweep5by2(SB), NOSPLIT, $0-8
	BEGIN
	TWODOWN(EVEN5, ODD5, PICK, ADD, READ, WRITE, TURN3)

// func sweep3Plain(a *sweep)
TEXT ·sweep3Plain(SB), NOSPLIT, $0-8
	BEGIN
	HOLD9(VBROADCASTSS, 4)
	TAPMASKS
	ONEDOWN(LOADED3, PICK, ADD, READ3, WRITEPLAIN, TURN3)

// func sweep5Plain(a *sweep)
TEXT ·sweep5Plain(SB), NOSPLIT, $0-8
	BEGIN
	ONEDOWN(DOWN5, PICK, ADD, READ, WRITEPLAIN, TURN5)

// func sweep3by2Plain(a *sweep)
TEXT ·sweep3by2Plain(SB), NOSPLIT, $0-8
	BEGIN
	HOLD9(VBROADCASTSS, 4)
	TWODOWN(EVEN3, ODD3, PICK, ADD, READ, WRITEPLAIN, TURN2)

// func sweep5by2Plain(a *sweep)
TEXT ·sweep5by2Plain(SB), NOSPLIT, $0-8
	BEGIN
	TWODOWN(EVEN5, ODD5, PICK, ADD, READ, WRITEPLAIN, TURN3)

// func sweepTwo3(a *sweep)
TEXT ·sweepTwo3(SB), NOSPLIT, $0-8
	BEGINTWO(WEIGHTS9)
	HOLD9(VBROADCASTSD, 8)
	ONEDOWN(DOWN3, PICKTWO, ADDTWO, READTWO, WRITETWO, TURN3)

// func sweepTwo5(a *sweep)
TEXT ·sweepTwo5(SB), NOSPLIT, $0-8
	BEGINTWO(WEIGHTS25)
	ONEDOWN(DOWN5, PICKTWO, ADDTWO, READTWO, WRITETWO, TURN5)

// func sweepTwo3by2(a *sweep)
TEXT ·sweepTwo3by2(SB), NOSPLIT, $0-8
	BEGINTWO(WEIGHTS9)
	HOLD9(VBROADCASTSD, 8)
	TWODOWN(EVEN3, ODD3, PICKTWO, ADDTWO, READTWO, WRITETWO, TURN2)

// func sweepTwo5by2(a *sweep)
TEXT ·sweepTwo5by2(SB), NOSPLIT, $0-8
	BEGINTWO(WEIGHTS25)
	TWODOWN(EVEN5, ODD5, PICKTWO, ADDTWO, READTWO, WRITETWO, TURN3)
