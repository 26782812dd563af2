//go:build cuda && cgo

// A stub knows its index in the table and jumps to what is there: arguments,
// on the stack or not, and the return address stay as they are, so no stub needs
// its function's prototype.

	.text

	.set index, 0
#define NAME(n) \
	.globl n; .hidden n; .type n, @function; \
n:	endbr64; movl $index, %eax; jmp enter; \
	.size n, . - n; .set index, index + 1;
#include "names.h"

	.type enter, @function
enter:
	leaq	assay_cu_table(%rip), %r11
	movq	(%r11,%rax,8), %r11
	testq	%r11, %r11
	jz	resolve
	jmp	*%r11
	.size enter, . - enter

// The first call of a function: the registers with arguments are kept.
	.type resolve, @function
resolve:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq	$176, %rsp
	movq	%rdi, (%rsp)
	movq	%rsi, 8(%rsp)
	movq	%rdx, 16(%rsp)
	movq	%rcx, 24(%rsp)
	movq	%r8, 32(%rsp)
	movq	%r9, 40(%rsp)
	movups	%xmm0, 48(%rsp)
	movups	%xmm1, 64(%rsp)
	movups	%xmm2, 80(%rsp)
	movups	%xmm3, 96(%rsp)
	movups	%xmm4, 112(%rsp)
	movups	%xmm5, 128(%rsp)
	movups	%xmm6, 144(%rsp)
	movups	%xmm7, 160(%rsp)
	movl	%eax, %edi
	call	assay_cu_resolve
	movq	%rax, %r11
	movq	(%rsp), %rdi
	movq	8(%rsp), %rsi
	movq	16(%rsp), %rdx
	movq	24(%rsp), %rcx
	movq	32(%rsp), %r8
	movq	40(%rsp), %r9
	movups	48(%rsp), %xmm0
	movups	64(%rsp), %xmm1
	movups	80(%rsp), %xmm2
	movups	96(%rsp), %xmm3
	movups	112(%rsp), %xmm4
	movups	128(%rsp), %xmm5
	movups	144(%rsp), %xmm6
	movups	160(%rsp), %xmm7
	leave
	.cfi_def_cfa %rsp, 8
	jmp	*%r11
	.cfi_endproc
	.size resolve, . - resolve

	.section .note.GNU-stack, "", @progbits
