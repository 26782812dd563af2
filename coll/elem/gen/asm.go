package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Vector registers by role. A body may write only temporaries and its output: it must
// preserve the inputs, and above all the pattern.
const (
	regA, regB, regOut = 0, 1, 2
	tmp0               = 3 // tmp0 … tmp5
	regProduct         = 9
	const0             = 10 // const0 … const0+3: the constants a body names first
	numConstRegs       = 4
	regPattern         = 14
	regLast            = 15
)

// asm builds one file of assembly.
type asm struct {
	code   strings.Builder
	consts map[string]bool   // 32-byte constants that the file uses
	inReg  map[string]string // the constants that the current function holds in registers
}

func newAsm() *asm { return &asm{consts: map[string]bool{}} }

// f writes an instruction.
func (a *asm) f(format string, args ...any) {
	fmt.Fprintf(&a.code, "\t"+format+"\n", args...)
}

func (a *asm) function(name string, args int) {
	fmt.Fprintf(&a.code, "\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, args)
}

func (a *asm) label(name string, number ...int) {
	for _, n := range number {
		name += fmt.Sprint(n)
	}
	fmt.Fprintf(&a.code, "\n%s:\n", name)
}

func y(r int) string { return fmt.Sprintf("Y%d", r) }
func x(r int) string { return fmt.Sprintf("X%d", r) }

// c returns the operand for a constant: a register if the function holds it in one,
// otherwise memory. It may only be used where an instruction accepts memory, which is the
// first operand.
func (a *asm) c(name string) string {
	if _, ok := constants[name]; !ok {
		panic("gen: no constant " + name)
	}
	if r, ok := a.inReg[name]; ok {
		return r
	}
	a.consts[name] = true
	return name + "<>(SB)"
}

// holdConsts loads a function's constants into the reserved registers.
func (a *asm) holdConsts(names []string) {
	a.inReg = map[string]string{}
	for i, n := range names {
		if i == numConstRegs {
			break
		}
		mem := a.c(n)
		a.f("VMOVDQU %s, %s", mem, y(const0+i))
		a.inReg[n] = y(const0 + i)
	}
}

// constants are patterns of 4 bytes, repeated to 32; 8-byte constants are written as
// their two halves, low first.
var constants = map[string][2]uint32{
	"nan32":    {0x7fffffff, 0x7fffffff},
	"nan64":    {0xffffffff, 0x7fffffff},
	"nanBF16":  {0x7fff0000, 0x7fff0000}, // rounds to 0x7fff; 0x7fffffff would carry into the sign
	"highHalf": {0xffff0000, 0xffff0000},
	"round16":  {0x7fff, 0x7fff},
	"one32":    {1, 1},
}

// text returns the finished file.
func (a *asm) text() string {
	var b strings.Builder
	b.WriteString(header + "\n#include \"textflag.h\"\n")
	for _, n := range slices.Sorted(maps.Keys(a.consts)) {
		v := constants[n]
		b.WriteByte('\n')
		for off := 0; off < 32; off += 8 {
			fmt.Fprintf(&b, "DATA %s<>+%d(SB)/8, $%#x\n", n, off, uint64(v[1])<<32|uint64(v[0]))
		}
		fmt.Fprintf(&b, "GLOBL %s<>(SB), RODATA|NOPTR, $32\n", n)
	}
	b.WriteString(a.code.String())
	return b.String()
}
