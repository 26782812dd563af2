package main

import "fmt"

// walk describes a function's arguments in addition to dst: one or two inputs as long as
// dst, and perhaps a multiplier: 8 bytes of copies of one element.
type walk struct {
	inputs  int
	pattern bool
}

var inputRegs = []string{"SI", "DX"}
var inputNames = []string{"a", "b"}

// elementwise writes a function that applies a body to every element.
//
// From one unit of memory on, the last unit is computed first and stored last: whole
// units from the front then cover the rest, whatever the length, without a loop for a
// tail. Overlapping parts are computed twice from inputs that are still untouched, so dst
// may be an input. Less than a unit is assembled in one register from two pieces that
// overlap in the same way.
func (a *asm) elementwise(name string, t elemType, w walk, b body) {
	args := 24 * (1 + w.inputs)
	if w.pattern {
		args += 8
	}
	a.function(name, args)
	a.f("MOVQ dst_base+0(FP), DI")
	a.f("MOVQ dst_len+8(FP), CX")
	for i := range w.inputs {
		a.f("MOVQ %s_base+%d(FP), %s", inputNames[i], 24*(i+1), inputRegs[i])
		a.f("CMPQ CX, %s_len+%d(FP)", inputNames[i], 24*(i+1)+8)
		a.f("JNE bad")
	}
	if t.size > 1 {
		a.f("TESTQ $%d, CX", t.size-1)
		a.f("JNZ bad")
	}
	if w.pattern {
		a.f("VPBROADCASTQ scale+%d(FP), Y%d", args-8, regPattern)
	}
	a.holdConsts(b.consts)
	second := regB
	if w.inputs == 1 {
		second = regPattern
	}
	unit := func(out int, at string) {
		for i := range w.inputs {
			a.load(t.unit, at+"("+inputRegs[i]+")", i)
		}
		b.emit(a, out, regA, second)
	}
	advance := func(n int) {
		for i := range w.inputs {
			a.f("ADDQ $%d, %s", n, inputRegs[i])
		}
		a.f("ADDQ $%d, DI", n)
	}

	a.f("CMPQ CX, $%d", t.unit)
	a.f("JB small")
	for i := range w.inputs {
		a.load(t.unit, fmt.Sprintf("-%d(%s)(CX*1)", t.unit, inputRegs[i]), i)
	}
	b.emit(a, regLast, regA, second)
	a.f("LEAQ -%d(DI)(CX*1), R8", t.unit)
	if n := t.unroll * t.unit; t.unroll > 1 {
		a.f("SUBQ $%d, CX", n)
		a.f("JB rest")
		a.label("loop")
		for k := range t.unroll {
			at := fmt.Sprint(k * t.unit)
			unit(regOut, at)
			a.store(t.unit, regOut, at+"(DI)")
		}
		advance(n)
		a.f("SUBQ $%d, CX", n)
		a.f("JAE loop")
		a.label("rest")
		a.f("ADDQ $%d, CX", n)
	}
	a.label("next")
	a.f("CMPQ CX, $%d", t.unit)
	a.f("JBE last")
	unit(regOut, "")
	a.store(t.unit, regOut, "(DI)")
	advance(t.unit)
	a.f("SUBQ $%d, CX", t.unit)
	a.f("JMP next")
	a.label("last")
	a.store(t.unit, regLast, "(R8)")
	a.f("VZEROUPPER")
	a.f("RET")

	a.small(t, w.inputs, func() { b.emit(a, regOut, regA, second) })
	a.label("bad")
	a.f("JMP ·badLength(SB)")
}

// small is the part of a function for less than a unit.
func (a *asm) small(t elemType, inputs int, emit func()) {
	a.label("small")
	a.branch(t, "load")
	a.f("VZEROUPPER")
	a.f("RET")
	for n := t.unit / 2; n >= t.size; n /= 2 {
		a.label("load", n)
		for i := range inputs {
			a.loadPieces(n, t.size, inputRegs[i], i)
		}
		if n > t.size {
			a.f("JMP compute")
		}
	}
	a.label("compute")
	emit()
	a.branch(t, "store")
	for n := t.unit / 2; n >= t.size; n /= 2 {
		a.label("store", n)
		a.storePieces(n, t.size, regOut)
		a.f("VZEROUPPER")
		a.f("RET")
	}
}

// branch jumps to the label of the largest power of two that CX reaches.
func (a *asm) branch(t elemType, label string) {
	for n := t.unit / 2; n >= t.size; n /= 2 {
		a.f("CMPQ CX, $%d", n)
		a.f("JAE %s%d", label, n)
	}
}

// load and store move one unit between memory and a register.
func (a *asm) load(unit int, mem string, r int)  { a.f("%s %s, %s", move(unit), mem, reg(unit, r)) }
func (a *asm) store(unit int, r int, mem string) { a.f("%s %s, %s", move(unit), reg(unit, r), mem) }

func move(n int) string {
	switch n {
	case 8:
		return "VMOVQ"
	case 4:
		return "VMOVD"
	}
	return "VMOVDQU"
}

func reg(n, r int) string {
	if n == 32 {
		return y(r)
	}
	return x(r)
}

// insert and extract contain the instructions for the second of two pieces of n bytes in
// a register.
var (
	insert  = map[int]string{16: "VINSERTI128", 8: "VPINSRQ", 4: "VPINSRD", 2: "VPINSRW"}
	extract = map[int]string{16: "VEXTRACTI128", 8: "VPEXTRQ", 4: "VPEXTRD", 2: "VPEXTRW"}
)

// loadPieces puts the first n of CX bytes and the last n side by side. When n is the
// element's size, there is only one piece: CX is below 2n.
func (a *asm) loadPieces(n, size int, base string, r int) {
	if n >= 4 {
		a.f("%s (%s), %s", move(n), base, x(r))
	} else {
		a.f("VPXOR %s, %s, %s", x(r), x(r), x(r))
		a.f("%s $0, (%s), %s, %s", insert[n], base, x(r), x(r))
	}
	if n > size {
		a.f("%s $1, -%d(%s)(CX*1), %s, %s", insert[n], n, base, reg(2*n, r), reg(2*n, r))
	}
}

func (a *asm) storePieces(n, size, r int) {
	if n >= 4 {
		a.f("%s %s, (DI)", move(n), x(r))
	} else {
		a.f("%s $0, %s, (DI)", extract[n], x(r))
	}
	if n > size {
		a.f("%s $1, %s, -%d(DI)(CX*1)", extract[n], reg(2*n, r), n)
	}
}
