#include "textflag.h"

// A window is swept down two strips of a plane at once, in vectors of eight columns. Each line is read once, and every output line that
// it belongs to has its sums in two registers, Y0 and Y5 those of the one that ends next. Sums run over the taps in their order.
//
// SI and BX the lines of both strips, R8 the bytes to the next, CX lines left, R11 lines that end no output, DX outputs that end after
// the last line, DI and AX outputs of both strips, R9 the bytes to the next, R10 vectors of weights and of what finishes sums, R12 the
// columns of loads that lie in the plane, R13 whether the first line is an odd one.

// The vectors at R10 behind the weights.
#define START 800(R10)
#define SCALE 832(R10)
#define SHIFT 864(R10)
#define LO 896(R10)
#define HI 928(R10)

// SPREAD fills a vector with a number.
#define SPREAD(from, to) \
	VBROADCASTSS from, Y15 \
	VMOVUPS      Y15, to

#define BEGIN(taps) \
	MOVQ a+0(FP), R14     \
	MOVQ 88(R14), DI      \
	MOVQ 112(R14), R10    \
	MOVQ 96(R14), R12     \
	SPREAD(0(R12), START) \
	SPREAD(4(R12), SCALE) \
	SPREAD(8(R12), SHIFT) \
	SPREAD(12(R12), LO)   \
	SPREAD(16(R12), HI)   \
	MOVQ R10, SI          \
	MOVQ $taps, CX        \
weight: \
	SPREAD((DI), (SI))    \
	ADDQ $4, DI           \
	ADDQ $32, SI          \
	DECQ CX               \
	JNZ  weight           \
	MOVQ 0(R14), SI       \
	MOVQ SI, BX           \
	ADDQ 8(R14), SI       \
	ADDQ 16(R14), BX      \
	MOVQ 24(R14), R8      \
	MOVQ 32(R14), DI      \
	MOVQ 40(R14), AX      \
	MOVQ 48(R14), R9      \
	MOVQ 56(R14), R11     \
	MOVQ 64(R14), CX      \
	MOVQ 72(R14), DX      \
	MOVQ 80(R14), R13     \
	MOVQ 104(R14), R12    \
	VMOVUPS START, Y0     \
	VMOVAPS Y0, Y1        \
	VMOVAPS Y0, Y2        \
	VMOVAPS Y0, Y3        \
	VMOVAPS Y0, Y4        \
	VMOVAPS Y0, Y5        \
	VMOVAPS Y0, Y6        \
	VMOVAPS Y0, Y7        \
	VMOVAPS Y0, Y8        \
	VMOVAPS Y0, Y9

// LOAD reads the columns of load v that lie in the plane, and 0 for others.
#define LOAD(v, at, to) \
	VMOVUPS    (32*(v))(R12), to \
	VMASKMOVPS at, to, to

// FUSED adds the product of a weight and both strips' columns, Y10 and Y11, to sums, and STEPS rounds it first.
#define FUSED(tap, one, two) \
	VMOVUPS     (32*(tap))(R10), Y14 \
	VFMADD231PS Y14, Y10, one        \
	VFMADD231PS Y14, Y11, two

#define STEPS(tap, one, two) \
	VMOVUPS (32*(tap))(R10), Y14 \
	VMULPS  Y14, Y10, Y15        \
	VADDPS  Y15, one, one        \
	VMULPS  Y14, Y11, Y15        \
	VADDPS  Y15, two, two

// PICK reads the columns of tap j, with a stride of one.
#define PICK(j) \
	LOAD(2*(j), (4*(j))(SI), Y10)   \
	LOAD(2*(j)+1, (4*(j))(BX), Y11)

// PAIRS reads the columns of taps 2t and 2t + 1, with a stride of two; EVENS and ODDS pick them, halves of lanes in turn.
#define PAIRS(t) \
	LOAD(4*(t), (8*(t))(SI), Y3)      \
	LOAD(4*(t)+1, (8*(t)+32)(SI), Y4) \
	LOAD(4*(t)+2, (8*(t))(BX), Y8)    \
	LOAD(4*(t)+3, (8*(t)+32)(BX), Y9)

#define EVENS \
	VSHUFPS $0x88, Y4, Y3, Y10 \
	VSHUFPS $0x88, Y9, Y8, Y11

#define ODDS \
	VSHUFPS $0xDD, Y4, Y3, Y10 \
	VSHUFPS $0xDD, Y9, Y8, Y11

#define TAP3(add, j) \
	PICK(j)           \
	add(6+j, Y0, Y5)  \
	add(3+j, Y1, Y6)  \
	add(0+j, Y2, Y7)

#define DOWN3(add) \
	TAP3(add, 0) \
	TAP3(add, 1) \
	TAP3(add, 2)

#define TAP5(add, j) \
	PICK(j)           \
	add(20+j, Y0, Y5) \
	add(15+j, Y1, Y6) \
	add(10+j, Y2, Y7) \
	add(5+j, Y3, Y8)  \
	add(0+j, Y4, Y9)

#define DOWN5(add) \
	TAP5(add, 0) \
	TAP5(add, 1) \
	TAP5(add, 2) \
	TAP5(add, 3) \
	TAP5(add, 4)

#define EVEN3TAP(add, j) \
	add(6+j, Y0, Y5) \
	add(0+j, Y1, Y6)

#define EVEN3(add) \
	PAIRS(0)         \
	EVENS            \
	EVEN3TAP(add, 0) \
	ODDS             \
	EVEN3TAP(add, 1) \
	PAIRS(1)         \
	EVENS            \
	EVEN3TAP(add, 2)

#define ODD3(add) \
	PAIRS(0)       \
	EVENS          \
	add(3, Y0, Y5) \
	ODDS           \
	add(4, Y0, Y5) \
	PAIRS(1)       \
	EVENS          \
	add(5, Y0, Y5)

#define EVEN5TAP(add, j) \
	add(20+j, Y0, Y5) \
	add(10+j, Y1, Y6) \
	add(0+j, Y2, Y7)

#define ODD5TAP(add, j) \
	add(15+j, Y0, Y5) \
	add(5+j, Y1, Y6)

#define BOTH5(add, tap) \
	PAIRS(0)    \
	EVENS       \
	tap(add, 0) \
	ODDS        \
	tap(add, 1) \
	PAIRS(1)    \
	EVENS       \
	tap(add, 2) \
	ODDS        \
	tap(add, 3) \
	PAIRS(2)    \
	EVENS       \
	tap(add, 4)

#define EVEN5(add) BOTH5(add, EVEN5TAP)
#define ODD5(add) BOTH5(add, ODD5TAP)

// TURN5 to TURN2 move the sums of that many lines of outputs to the registers before, and begin the last.

#define TURN5 \
	VMOVAPS Y1, Y0    \
	VMOVAPS Y2, Y1    \
	VMOVAPS Y3, Y2    \
	VMOVAPS Y4, Y3    \
	VMOVUPS START, Y4 \
	VMOVAPS Y6, Y5    \
	VMOVAPS Y7, Y6    \
	VMOVAPS Y8, Y7    \
	VMOVAPS Y9, Y8    \
	VMOVAPS Y4, Y9

#define TURN3 \
	VMOVAPS Y1, Y0    \
	VMOVAPS Y2, Y1    \
	VMOVUPS START, Y2 \
	VMOVAPS Y6, Y5    \
	VMOVAPS Y7, Y6    \
	VMOVAPS Y2, Y7

#define TURN2 \
	VMOVAPS Y1, Y0    \
	VMOVUPS START, Y1 \
	VMOVAPS Y6, Y5    \
	VMOVAPS Y1, Y6

// FINISH scales, shifts and bounds the sums that are done.
#define FINISH(order) \
	VMOVUPS SCALE, Y12      \
	VMULPS  Y12, Y0, Y10    \
	VMULPS  Y12, Y5, Y11    \
	VMOVUPS SHIFT, Y12      \
	VADDPS  Y12, Y10, Y10   \
	VADDPS  Y12, Y11, Y11   \
	VMOVUPS LO, Y12         \
	VMAXPS  Y10, Y12, Y10   \
	VMAXPS  Y11, Y12, Y11   \
	VMOVUPS HI, Y12         \
	VMINPS  Y10, Y12, Y10   \
	VMINPS  Y11, Y12, Y11   \
	order                   \
	VMOVUPS Y10, (DI)       \
	VMOVUPS Y11, (AX)       \
	ADDQ    R9, DI          \
	ADDQ    R9, AX

// ASIS keeps the order of the columns.
#define ASIS

// INORDER undoes what PAIRS' halves of lanes did.
#define INORDER \
	VPERMPD $0xD8, Y10, Y10 \
	VPERMPD $0xD8, Y11, Y11

#define REST(order, turn) \
rest: \
	DECQ DX       \
	JMI  done     \
	FINISH(order) \
	turn          \
	JMP  rest     \
done: \
	VZEROUPPER    \
	RET

// NEXT goes on to the next lines of both strips.
#define NEXT \
	PREFETCHT0 (SI)(R8*8) \
	PREFETCHT0 (BX)(R8*8) \
	ADDQ       R8, SI     \
	ADDQ       R8, BX

#define ONEDOWN(down, add, turn) \
line: \
	down(add)    \
	NEXT         \
	DECQ R11     \
	JPL  none    \
	FINISH(ASIS) \
none: \
	turn         \
	DECQ CX      \
	JNZ  line    \
	REST(ASIS, turn)

#define TWODOWN(even, odd, add, turn) \
	TESTQ R13, R13 \
	JNE   second   \
first: \
	even(add)       \
	NEXT            \
	DECQ R11        \
	JPL  none       \
	FINISH(INORDER) \
none: \
	turn            \
	DECQ CX         \
	JZ   rest       \
second: \
	odd(add)        \
	NEXT            \
	DECQ CX         \
	JNZ  first      \
	REST(INORDER, turn)

// func eights3(a *eightSweep)
TEXT ·eights3(SB), NOSPLIT, $0-8
	BEGIN(9)
	ONEDOWN(DOWN3, FUSED, TURN3)

// func eights5(a *eightSweep)
TEXT ·eights5(SB), NOSPLIT, $0-8
	BEGIN(25)
	ONEDOWN(DOWN5, FUSED, TURN5)

// func eights3by2(a *eightSweep)
TEXT ·eights3by2(SB), NOSPLIT, $0-8
	BEGIN(9)
	TWODOWN(EVEN3, ODD3, FUSED, TURN2)

// func eights5by2(a *eightSweep)
TEXT ·eights5by2(SB), NOSPLIT, $0-8
	BEGIN(25)
	TWODOWN(EVEN5, ODD5, FUSED, TURN3)

// func eightSteps3(a *eightSweep)
TEXT ·eightSteps3(SB), NOSPLIT, $0-8
	BEGIN(9)
	ONEDOWN(DOWN3, STEPS, TURN3)

// func eightSteps5(a *eightSweep)
TEXT ·eightSteps5(SB), NOSPLIT, $0-8
	BEGIN(25)
	ONEDOWN(DOWN5, STEPS, TURN5)

// func eightSteps3by2(a *eightSweep)
TEXT ·eightSteps3by2(SB), NOSPLIT, $0-8
	BEGIN(9)
	TWODOWN(EVEN3, ODD3, STEPS, TURN2)

// func eightSteps5by2(a *eightSweep)
TEXT ·eightSteps5by2(SB), NOSPLIT, $0-8
	BEGIN(25)
	TWODOWN(EVEN5, ODD5, STEPS, TURN3)
