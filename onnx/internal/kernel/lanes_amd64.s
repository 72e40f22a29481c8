#include "textflag.h"
#include "go_asm.h"

// SPREAD writes the transform of a line, a and b of the two pieces: lanes in Z16 to Z19, tiles that have them in K1 to K4, Z20 to Z27 on
// the way; R12 is where it goes.
#define SPREAD(a, b) \
	VMOVAPS     Z16, Z20         \
	VMOVAPS     Z17, Z21         \
	VMOVAPS     Z18, Z22         \
	VMOVAPS     Z19, Z23         \
	VPERMI2PS.Z b, a, K1, Z20    \
	VPERMI2PS.Z b, a, K2, Z21    \
	VPERMI2PS.Z b, a, K3, Z22    \
	VPERMI2PS.Z b, a, K4, Z23    \
	VSUBPS      Z22, Z20, Z24    \
	VADDPS      Z22, Z21, Z25    \
	VSUBPS      Z21, Z22, Z26    \
	VSUBPS      Z23, Z21, Z27    \
	VMOVUPS     Z24, (R12)       \
	VMOVUPS     Z25, (R12)(R8*1) \
	VMOVUPS     Z26, (R12)(R8*2) \
	VMOVUPS     Z27, (R12)(R13*1) \
	LEAQ        (R12)(R8*4), R12

// MASKS has K1 to K4 name what is there of the four lines at a place, and AX point to the first of them.
#define MASKS(place) \
	MOVQ  (tileGroup_from+8*place)(DX), AX      \
	LEAQ  (SI)(AX*4), AX                        \
	KMOVW (tileGroup_masks+8*place)(DX), K1     \
	KMOVW (tileGroup_masks+8*place+2)(DX), K2   \
	KMOVW (tileGroup_masks+8*place+4)(DX), K3   \
	KMOVW (tileGroup_masks+8*place+6)(DX), K4

// LINES sets a to d to the lines at a place, with zeros where nothing is.
#define LINES(place, a, b, c, d) \
	MASKS(place)                    \
	VMOVUPS.Z (AX), K1, a           \
	VMOVUPS.Z (AX)(R9*1), K2, b     \
	VMOVUPS.Z (AX)(R9*2), K3, c     \
	VMOVUPS.Z (AX)(R10*1), K4, d

// MORE adds what is there of the lines at another place to a to d, or goes on where nothing is.
#define MORE(place, a, b, c, d, on) \
	CMPQ    (tileGroup_masks+8*place)(DX), $0 \
	JEQ     on                      \
	MASKS(place)                    \
	VMOVUPS (AX), K1, a             \
	VMOVUPS (AX)(R9*1), K2, b       \
	VMOVUPS (AX)(R9*2), K3, c       \
	VMOVUPS (AX)(R10*1), K4, d

#define TILESOUT \
	MOVQ         groups+0(FP), DX \
	MOVQ         n+8(FP), CX \
	MOVQ         dst+16(FP), DI \
	MOVQ         m+24(FP), SI \
	MOVQ         apart+32(FP), R8 \
	MOVQ         f+40(FP), R12 \
	VBROADCASTSS (R12), Z16 \
	VBROADCASTSS 32(R12), Z17 \
	VBROADCASTSS 64(R12), Z18 \
	VBROADCASTSS 96(R12), Z19 \
	VMOVUPS      outLanes<>(SB), Z20 \
	SHLQ         $2, R8 \
	LEAQ         (R8)(R8*2), R10 \
group: \
	MOVQ tileGroup_at(DX), AX \
	LEAQ (SI)(AX*4), AX \
	SUMS(Z0, Z4) \
	SUMS(Z1, Z5) \
	SUMS(Z2, Z6) \
	SUMS(Z3, Z7) \
	ENDS(Z0, Z1, Z2, Z3, Z8, Z9) \
	ENDS(Z4, Z5, Z6, Z7, Z10, Z11) \
	MOVQ tileGroup_count(DX), R9 \
	LEAQ tileGroup_pieces(DX), BX \
piece: \
	VPBROADCASTD (BX), Z21 \
	KMOVW        4(BX), K1 \
	MOVQ         8(BX), R11 \
	MOVQ         16(BX), R12 \
	VPADDD       Z20, Z21, Z21 \
	VMOVAPS      Z21, Z22 \
	VPERMI2PS    Z11, Z10, Z22 \
	VPERMI2PS    Z9, Z8, Z21 \
	VMOVUPS      Z22, K1, (DI)(R12*4) \
	VMOVUPS      Z21, K1, (DI)(R11*4) \
	ADDQ         $tilePiece__size, BX \
	DECQ         R9 \
	JNZ          piece \
	ADDQ         $tileGroup__size, DX \
	DECQ         CX \
	JNZ          group \
	VZEROUPPER \
	RET

#define TILESIN \
	MOVQ groups+0(FP), DX \
	MOVQ n+8(FP), CX \
	MOVQ v+16(FP), DI \
	MOVQ apart+24(FP), R8 \
	MOVQ x+32(FP), SI \
	MOVQ wide+40(FP), R9 \
	SHLQ $2, R8 \
	SHLQ $2, R9 \
	LEAQ (R8)(R8*2), R13 \
	LEAQ (R9)(R9*2), R10 \
group: \
	LINES(0, Z0, Z1, Z2, Z3) \
	LINES(2, Z4, Z5, Z6, Z7) \
	MORE(1, Z0, Z1, Z2, Z3, second) \
second: \
	MORE(3, Z4, Z5, Z6, Z7, both) \
both: \
	MOVQ      tileGroup_sources(DX), R11 \
	VMOVUPS   (R11), Z16 \
	VMOVUPS   64(R11), Z17 \
	VMOVUPS   128(R11), Z18 \
	VMOVUPS   192(R11), Z19 \
	KMOVW     256(R11), K1 \
	KMOVW     258(R11), K2 \
	KMOVW     260(R11), K3 \
	KMOVW     262(R11), K4 \
	MOVQ      tileGroup_at(DX), R12 \
	LEAQ      (DI)(R12*4), R12 \
	VSUBPS    Z2, Z0, Z8 \
	VADDPS    Z2, Z1, Z9 \
	VSUBPS    Z1, Z2, Z10 \
	VSUBPS    Z3, Z1, Z11 \
	VSUBPS    Z6, Z4, Z12 \
	VADDPS    Z6, Z5, Z13 \
	VSUBPS    Z5, Z6, Z14 \
	VSUBPS    Z7, Z5, Z15 \
	SPREAD(Z8, Z12) \
	SPREAD(Z9, Z13) \
	SPREAD(Z10, Z14) \
	SPREAD(Z11, Z15) \
	ADDQ      $tileGroup__size, DX \
	DECQ      CX \
	JNZ       group \
	VZEROUPPER \
	RET

// func tilesInZ(groups *tileGroup, n int, v *float32, apart int, x *float32, wide int)
//
// AVX-512: CX groups left, DX the group; DI where the transform goes, R8 its elements' distance and R13 three times that; SI the plane, AX
// a piece's lines, R9 a line and R10 three. Z0 to Z7 lines, Z8 to Z15 their differences and sums.
TEXT ·tilesInZ(SB), NOSPLIT, $0-48
	TILESIN

// SUMS sums a column of a tile's product at AX, elements R8 bytes apart, to s and t.
#define SUMS(s, t) \
	VMOVUPS (AX)(R8*4), t     \
	VMOVUPS (AX)(R8*8), Z15   \
	VADDPS  (AX), t, s        \
	VADDPS  Z15, s, s         \
	VSUBPS  Z15, t, t         \
	VSUBPS  (AX)(R10*4), t, t \
	ADDQ    R8, AX

// ENDS sets p and q to the even and the odd outputs of a line from its four sums, finished; Z16 to Z19 hold scale, shift and bounds.
#define ENDS(a, b, c, d, p, q) \
	VADDPS b, a, p     \
	VADDPS c, p, p     \
	VSUBPS c, b, q     \
	VSUBPS d, q, q     \
	VMULPS Z16, p, p   \
	VMULPS Z16, q, q   \
	VADDPS Z17, p, p   \
	VADDPS Z17, q, q   \
	VMAXPS p, Z18, p   \
	VMAXPS q, Z18, q   \
	VMINPS p, Z19, p   \
	VMINPS q, Z19, q

// outLanes are the lanes of a line of outputs of two vectors, of even columns and of odd ones.
DATA outLanes<>+0(SB)/8, $0x0000001000000000
DATA outLanes<>+8(SB)/8, $0x0000001100000001
DATA outLanes<>+16(SB)/8, $0x0000001200000002
DATA outLanes<>+24(SB)/8, $0x0000001300000003
DATA outLanes<>+32(SB)/8, $0x0000001400000004
DATA outLanes<>+40(SB)/8, $0x0000001500000005
DATA outLanes<>+48(SB)/8, $0x0000001600000006
DATA outLanes<>+56(SB)/8, $0x0000001700000007
GLOBL outLanes<>(SB), RODATA|NOPTR, $64

// func tilesOutZ(groups *tileGroup, n int, dst, m *float32, apart int, f *finish)
//
// AVX-512: CX groups left, DX the group, R9 its pieces left and BX the piece; DI the output, R11 and R12 where two lines of it go; SI and
// AX the product's elements, R8 and R10 their distance and three times that. Z0 to Z7 sums of columns, Z8 to Z11 outputs, Z20 outLanes,
// Z21 and Z22 the lanes of a piece; K1 its outputs.
TEXT ·tilesOutZ(SB), NOSPLIT, $0-48
	TILESOUT
