#include "textflag.h"

// func avxCopy(dst, src []byte)
// For at least 256 bytes. The first 32 bytes and the last 128 are stored in the
// ordinary way; the stores between are aligned and pass the caches by.
TEXT ·avxCopy(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	VMOVDQU (SI), Y0
	VMOVDQU -128(SI)(CX*1), Y1
	VMOVDQU -96(SI)(CX*1), Y2
	VMOVDQU -64(SI)(CX*1), Y3
	VMOVDQU -32(SI)(CX*1), Y4
	LEAQ -128(DI)(CX*1), R8
	VMOVDQU Y0, (DI)
	MOVQ DI, AX // to the next cache line
	NEGQ AX
	ANDQ $63, AX
	CMPQ AX, $32
	JBE aligned
	VMOVDQU 32(SI), Y0
	VMOVDQU Y0, 32(DI)

aligned:
	ADDQ AX, SI
	ADDQ AX, DI
	SUBQ AX, CX
	SUBQ $128, CX

loop:
	VMOVDQU (SI), Y5
	VMOVDQU 32(SI), Y6
	VMOVDQU 64(SI), Y7
	VMOVDQU 96(SI), Y8
	VMOVNTDQ Y5, (DI)
	VMOVNTDQ Y6, 32(DI)
	VMOVNTDQ Y7, 64(DI)
	VMOVNTDQ Y8, 96(DI)
	ADDQ $128, SI
	ADDQ $128, DI
	SUBQ $128, CX
	JA loop
	VMOVDQU Y1, (R8)
	VMOVDQU Y2, 32(R8)
	VMOVDQU Y3, 64(R8)
	VMOVDQU Y4, 96(R8)
	SFENCE
	VZEROUPPER
	RET
