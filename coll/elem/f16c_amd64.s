#include "textflag.h"

// func haveF16C() bool
// CPUID leaf 1, ECX bit 29 (Intel SDM, volume 2, CPUID).
TEXT ·haveF16C(SB), NOSPLIT, $0-1
	MOVL $1, AX
	XORL CX, CX
	CPUID
	SHRL $29, CX
	ANDL $1, CX
	MOVB CX, ret+0(FP)
	RET
