package main

import (
	"fmt"
	"strings"
)

// The arm64 loops: sums and products only, 16 bytes at a time. The walk is
// that of frame.go. Go's assembler has no floating-point vector arithmetic;
// those instructions are written as words (Arm ARM, section C7.2).

// neonUnit is the bytes of a vector register.
const neonUnit = 16

// Registers that bodies may use: temporaries, and constants set at the start.
const (
	neonT    = 16 // neonT … neonT+3
	neonNaN  = 24
	neonHigh = 25
	neonOne  = 26
	neonHalf = 27
)

// word encodes a vector instruction: out = p op q, or of one operand.
type word uint32

const (
	fadd   word = 0x4e20d400
	fmul   word = 0x6e20dc00
	fcmeq  word = 0x4e20e400
	mul32  word = 0x4ea09c00
	double word = 1 << 22 // the float instructions on two float64s
	fcvtl  word = 0x0e217800
	fcvtn  word = 0x0e216800
	upper  word = 1 << 30 // the conversions, of the upper half
)

func (a *asm) word(w word, out, p, q int) {
	a.f("WORD $%#08x", uint32(w)|uint32(q)<<16|uint32(p)<<5|uint32(out))
}

// v returns the operand for a register with an arrangement.
func v(r int, as string) string { return fmt.Sprintf("V%d.%s", r, as) }

// neonKernel is one function: set loads constants into registers, emit computes p = p op
// q.
type neonKernel struct {
	op, name string
	size     int
	set      []string
	emit     func(a *asm, p, q int)
}

func neonKernels() []neonKernel {
	vadd := func(as string) func(a *asm, p, q int) {
		return func(a *asm, p, q int) { a.f("VADD %s, %s, %s", v(q, as), v(p, as), v(p, as)) }
	}
	ks := []neonKernel{
		{op: "Sum", name: "Int32", size: 4, emit: vadd("S4")},
		{op: "Prod", name: "Int32", size: 4, emit: func(a *asm, p, q int) { a.word(mul32, p, p, q) }},
		{op: "Sum", name: "Int64", size: 8, emit: vadd("D2")},
	}
	nan := func(value, as string) []string {
		return []string{"MOVD $" + value + ", R9", "VDUP R9, " + v(neonNaN, as)}
	}
	for i, w := range []word{fadd, fmul} {
		op := ops[i]
		ks = append(ks,
			neonKernel{op, "Float16", 2, nan("0x7fffffff", "S4"), func(a *asm, p, q int) { neonFloat16(a, w, p, q) }},
			neonKernel{op, "Float32", 4, nan("0x7fffffff", "S4"), func(a *asm, p, q int) { neonFloat(a, w, 0, p, p, q, neonT) }},
			neonKernel{op, "Float64", 8, nan("0x7fffffffffffffff", "D2"), func(a *asm, p, q int) { neonFloat(a, w, double, p, p, q, neonT) }},
			neonKernel{op, "BFloat16", 2, append(nan("0x7fff0000", "S4"),
				"MOVD $0xffff0000, R9", "VDUP R9, "+v(neonHigh, "S4"),
				"MOVD $1, R9", "VDUP R9, "+v(neonOne, "S4"),
				"MOVD $0x7fff, R9", "VDUP R9, "+v(neonHalf, "S4")), func(a *asm, p, q int) { neonBFloat16(a, w, p, q) }})
	}
	return ks
}

// neonFloat computes, and replaces any NaN by the one that package elem stores.
func neonFloat(a *asm, w, width word, out, p, q, t int) {
	a.word(w|width, out, p, q)
	a.word(fcmeq|width, t, out, out)
	a.f("VBIF %s, %s, %s", v(t, "B16"), v(neonNaN, "B16"), v(out, "B16"))
}

func neonFloat16(a *asm, w word, p, q int) {
	for half := range word(2) {
		x, y := neonT+2*int(half), neonT+2*int(half)+1
		a.word(fcvtl|half*upper, x, p, 0)
		a.word(fcvtl|half*upper, y, q, 0)
		neonFloat(a, w, 0, x, x, y, y)
	}
	a.word(fcvtn, p, neonT, 0)
	a.word(fcvtn|upper, p, neonT+2, 0)
}

// neonBFloat16 processes even and odd elements separately, as on amd64.
func neonBFloat16(a *asm, w word, p, q int) {
	even, odd, t := neonT, neonT+1, neonT+2
	a.f("VSHL $16, %s, %s", v(p, "S4"), v(even, "S4"))
	a.f("VSHL $16, %s, %s", v(q, "S4"), v(t, "S4"))
	neonFloat(a, w, 0, even, even, t, t)
	a.f("VAND %s, %s, %s", v(neonHigh, "B16"), v(p, "B16"), v(odd, "B16"))
	a.f("VAND %s, %s, %s", v(neonHigh, "B16"), v(q, "B16"), v(t, "B16"))
	neonFloat(a, w, 0, odd, odd, t, t)
	for _, r := range []int{even, odd} {
		a.f("VUSHR $16, %s, %s", v(r, "S4"), v(t, "S4"))
		a.f("VAND %s, %s, %s", v(neonOne, "B16"), v(t, "B16"), v(t, "B16"))
		a.f("VADD %s, %s, %s", v(neonHalf, "S4"), v(t, "S4"), v(t, "S4"))
		a.f("VADD %s, %s, %s", v(t, "S4"), v(r, "S4"), v(r, "S4"))
	}
	a.f("VUSHR $16, %s, %s", v(even, "S4"), v(p, "S4"))
	a.f("VBIT %s, %s, %s", v(neonHigh, "B16"), v(odd, "B16"), v(p, "B16"))
}

// write is elementwise for arm64: dst in R0, its length in R1, inputs in R2
// and R3.
func (k neonKernel) write(a *asm) {
	a.function("neon"+k.op+k.name, 72)
	a.f("MOVD dst_base+0(FP), R0")
	a.f("MOVD dst_len+8(FP), R1")
	for i, in := range inputNames {
		a.f("MOVD %s_base+%d(FP), R%d", in, 24*(i+1), 2+i)
		a.f("MOVD %s_len+%d(FP), R4", in, 24*(i+1)+8)
		a.f("CMP R1, R4")
		a.f("BNE bad")
	}
	if k.size > 1 {
		a.f("TST $%d, R1", k.size-1)
		a.f("BNE bad")
	}
	for _, s := range k.set {
		a.f("%s", s)
	}
	end := func(n int) { // R5 … R7: where the last n bytes of dst and the inputs begin
		a.f("SUB $%d, R1, R4", n)
		a.f("ADD R4, R0, R5")
		a.f("ADD R4, R2, R6")
		a.f("ADD R4, R3, R7")
	}
	a.f("CMP $%d, R1", neonUnit)
	a.f("BLT small")
	end(neonUnit)
	a.f("VLD1 (R6), [V31.B16]")
	a.f("VLD1 (R7), [V8.B16]")
	k.emit(a, 31, 8)
	a.label("loop")
	a.f("CMP $64, R1")
	a.f("BLT next")
	a.f("VLD1.P 64(R2), [V0.B16, V1.B16, V2.B16, V3.B16]")
	a.f("VLD1.P 64(R3), [V4.B16, V5.B16, V6.B16, V7.B16]")
	for i := range 4 {
		k.emit(a, i, 4+i)
	}
	a.f("VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)")
	a.f("SUB $64, R1")
	a.f("B loop")
	a.label("next")
	a.f("CMP $%d, R1", neonUnit)
	a.f("BLE last")
	a.f("VLD1.P 16(R2), [V0.B16]")
	a.f("VLD1.P 16(R3), [V4.B16]")
	k.emit(a, 0, 4)
	a.f("VST1.P [V0.B16], 16(R0)")
	a.f("SUB $%d, R1", neonUnit)
	a.f("B next")
	a.label("last")
	a.f("VST1 [V31.B16], (R5)")
	a.f("RET")

	a.label("small")
	a.f("VEOR V0.B16, V0.B16, V0.B16")
	a.f("VEOR V4.B16, V4.B16, V4.B16")
	for n := neonUnit / 2; n >= k.size; n /= 2 {
		a.f("CMP $%d, R1", n)
		a.f("BGE small%d", n)
	}
	a.f("RET")
	for n := neonUnit / 2; n >= k.size; n /= 2 {
		lane := map[int]string{8: "D", 4: "S", 2: "H"}[n]
		a.label("small", n)
		end(n)
		for i, p := range []struct{ d, a, b string }{{"R0", "R2", "R3"}, {"R5", "R6", "R7"}} {
			a.f("VLD1 (%s), V0.%s[%d]", p.a, lane, i)
			a.f("VLD1 (%s), V4.%s[%d]", p.b, lane, i)
		}
		k.emit(a, 0, 4)
		a.f("VST1 V0.%s[0], (R0)", lane)
		a.f("VST1 V0.%s[1], (R5)", lane)
		a.f("RET")
	}
	a.label("bad")
	a.f("B ·badLength(SB)")
}

// neonFiles returns the arm64 files by name.
func neonFiles() map[string]string {
	a := newAsm()
	var decls, rows strings.Builder
	for _, k := range neonKernels() {
		k.write(a)
		declare(&decls, "neon"+k.op+k.name, "dst, a, b []byte")
	}
	for _, ty := range types() {
		fmt.Fprintf(&rows, "\t%s: {reduce: [numOps]Kernel{", ty.name)
		for _, k := range neonKernels() {
			if k.name == ty.name {
				fmt.Fprintf(&rows, "%s: neon%s%s, ", k.op, k.op, k.name)
			}
		}
		rows.WriteString("}},\n")
	}
	text := header + "\npackage elem\n" + decls.String() +
		"\nvar neon = [numTypes]loops{\n" + rows.String() + "}\n"
	return map[string]string{"reduce_arm64.s": a.text(), "kernels_arm64.go": gofmt(text)}
}
