package main

import "fmt"

// streamMin is the length from which streaming pays off: elem's benchmark of it has the
// figures.
const streamMin = 16 << 10

// streamed writes a variant of elementwise's two-input functions for a dst that is not
// read soon. Its stores bypass the caches, which avoids reading the lines that they
// replace. It jumps to the ordinary function when there is little to do, when dst is an
// input (and its lines are in the caches anyway), when dst is not aligned to its
// elements, and on any misuse.
func (a *asm) streamed(name, ordinary string, t elemType, b body) {
	a.function(name, 72)
	a.f("MOVQ dst_base+0(FP), DI")
	a.f("MOVQ dst_len+8(FP), CX")
	a.f("CMPQ CX, $%d", streamMin)
	a.f("JB ordinary")
	for i, in := range inputNames {
		a.f("MOVQ %s_base+%d(FP), %s", in, 24*(i+1), inputRegs[i])
		a.f("CMPQ CX, %s_len+%d(FP)", in, 24*(i+1)+8)
		a.f("JNE ordinary")
		a.f("CMPQ DI, %s", inputRegs[i])
		a.f("JEQ ordinary")
	}
	if t.size > 1 {
		a.f("MOVQ CX, AX")
		a.f("ORQ DI, AX")
		a.f("TESTQ $%d, AX", t.size-1)
		a.f("JNZ ordinary")
	}
	a.holdConsts(b.consts)
	unit := func(at string) {
		for i, r := range inputRegs {
			a.load(t.unit, fmt.Sprintf(at, r), i)
		}
		b.emit(a, regOut, regA, regB)
	}
	// The first and the last cache line, which dst may fill only partially.
	for _, at := range lineUnits(t.unit) {
		first, last := fmt.Sprintf("%d(%%s)", at), fmt.Sprintf("%d(%%s)(CX*1)", at-line)
		for _, at := range []string{first, last} {
			unit(at)
			a.store(t.unit, regOut, fmt.Sprintf(at, "DI"))
		}
	}
	a.f("MOVQ DI, AX")
	a.f("NEGQ AX")
	a.f("ANDQ $%d, AX", line-1)
	a.f("SUBQ AX, CX")
	for _, r := range append([]string{"DI"}, inputRegs...) {
		a.f("ADDQ AX, %s", r)
	}
	a.label("loop")
	for _, at := range lineUnits(t.unit) {
		unit(fmt.Sprintf("%d(%%s)", at))
		a.f("VMOVNTDQ %s, %d(DI)", reg(t.unit, regOut), at)
	}
	for _, r := range append([]string{"DI"}, inputRegs...) {
		a.f("ADDQ $%d, %s", line, r)
	}
	a.f("SUBQ $%d, CX", line)
	a.f("CMPQ CX, $%d", line)
	a.f("JAE loop")
	a.f("SFENCE") // without it, such stores are not ordered before others
	a.f("VZEROUPPER")
	a.f("RET")
	a.label("ordinary")
	a.f("JMP ·%s(SB)", ordinary)
}

// line is the size of a cache line.
const line = 64

// lineUnits returns the offsets of the units in a line.
func lineUnits(unit int) (at []int) {
	for i := 0; i < line; i += unit {
		at = append(at, i)
	}
	return at
}
