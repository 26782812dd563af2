//go:build cuda && cgo

// A stub knows its index in the table and jumps to what is there: arguments,
// on the stack or not, and the return address stay as they are, so no stub needs
// its function's prototype. x16 and x17 are free for such use.

	.text

	.set index, 0
#define NAME(n) \
	.globl n; .hidden n; .type n, %function; \
n:	hint 34; mov w16, index; b enter; \
	.size n, . - n; .set index, index + 1;
#include "names.h"

	.type enter, %function
enter:
	adrp	x17, assay_cu_table
	add	x17, x17, :lo12:assay_cu_table
	ldr	x17, [x17, x16, lsl #3]
	cbz	x17, resolve
	br	x17
	.size enter, . - enter

// The first call of a function: the registers with arguments are kept.
	.type resolve, %function
resolve:
	.cfi_startproc
	stp	x29, x30, [sp, #-208]!
	.cfi_def_cfa_offset 208
	.cfi_offset x29, -208
	.cfi_offset x30, -200
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	stp	q0, q1, [sp, #80]
	stp	q2, q3, [sp, #112]
	stp	q4, q5, [sp, #144]
	stp	q6, q7, [sp, #176]
	mov	w0, w16
	bl	assay_cu_resolve
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldp	q0, q1, [sp, #80]
	ldp	q2, q3, [sp, #112]
	ldp	q4, q5, [sp, #144]
	ldp	q6, q7, [sp, #176]
	ldp	x29, x30, [sp], #208
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	br	x16
	.cfi_endproc
	.size resolve, . - resolve

	.section .note.GNU-stack, "", %progbits
