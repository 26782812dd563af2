package main

// codec converts packed narrow floats to registers of float32, and back.
type codec struct {
	regs   int // registers that a unit fills: 1 or 2
	consts []string
	decode func(a *asm, in int, out [2]int)
	encode func(a *asm, in [2]int, out, t int) // may use temporaries t and t+1, and change in
}

func floatTypes() []elemType {
	full := func(name string, size int, s, nan string) elemType {
		t := elemType{name: name, size: size, unit: 32, unroll: 4}
		for i := range ops {
			t.body[i] = body{consts: []string{nan}, emit: func(a *asm, out, p, q int) {
				arith(a, i, s, out, p, q, tmp0, tmp0+1)
				canon(a, s, nan, out, tmp0)
			}}
		}
		return t
	}
	half := func(name string, unit int, c *codec) elemType {
		t := elemType{name: name, size: 2, unit: unit, unroll: 1}
		for i := range ops {
			t.body[i] = body{consts: c.consts, emit: func(a *asm, out, p, q int) {
				l, r := [2]int{tmp0, tmp0 + 1}, [2]int{tmp0 + 2, tmp0 + 3}
				c.decode(a, p, l)
				c.decode(a, q, r)
				for k := range c.regs {
					arith(a, i, "PS", l[k], l[k], r[k], tmp0+4, tmp0+5)
				}
				c.encode(a, l, out, tmp0+2)
			}}
		}
		return t
	}
	return []elemType{
		half("Float16", 16, float16()),
		full("Float32", 4, "PS", "nan32"),
		full("Float64", 8, "PD", "nan64"),
		half("BFloat16", 32, bfloat16()),
	}
}

// arith computes out = p op q in single (s = PS) or double (PD) precision; out may be p.
// Maximum and minimum are those of IEEE 754-2019's maximumNumber: a number wins over a
// NaN, and -0 < +0. The processor's instructions return their second source for NaN and
// for two zeros, hence the two corrections.
func arith(a *asm, op int, s string, out, p, q, t, u int) {
	if op < 2 {
		a.f("%s%s %s, %s, %s", []string{"VADD", "VMUL"}[op], s, y(q), y(p), y(out))
		return
	}
	a.f("%s%s %s, %s, %s", []string{"VMAX", "VMIN"}[op-2], s, y(q), y(p), y(t))
	a.f("VCMP%s $3, %s, %s, %s", s, y(q), y(q), y(u))
	a.f("VBLENDV%s %s, %s, %s, %s", s, y(u), y(p), y(t), y(t))
	a.f("VCMP%s $0, %s, %s, %s", s, y(q), y(p), y(u))
	a.f("%s%s %s, %s, %s", []string{"VAND", "VOR"}[op-2], s, y(q), y(p), y(out))
	a.f("VBLENDV%s %s, %s, %s, %s", s, y(u), y(out), y(t), y(out))
}

// canon replaces any NaN by the one that package elem stores.
func canon(a *asm, s, nan string, r, t int) {
	a.f("VCMP%s $3, %s, %s, %s", s, y(r), y(r), y(t))
	a.f("VBLENDV%s %s, %s, %s, %s", s, y(t), a.c(nan), y(r), y(r))
}

func float16() *codec {
	return &codec{regs: 1, consts: []string{"nan32"},
		decode: func(a *asm, in int, out [2]int) { a.f("VCVTPH2PS %s, %s", x(in), y(out[0])) },
		encode: func(a *asm, in [2]int, out, t int) {
			canon(a, "PS", "nan32", in[0], t)
			a.f("VCVTPS2PH $0, %s, %s", y(in[0]), x(out))
		},
	}
}

// bfloat16 processes even and odd elements separately: each is the upper half of a
// float32, so no element needs to cross a lane.
func bfloat16() *codec {
	round := func(a *asm, r, t int) {
		canon(a, "PS", "nanBF16", r, t)
		a.f("VPSRLD $16, %s, %s", y(r), y(t))
		a.f("VPAND %s, %s, %s", a.c("one32"), y(t), y(t))
		a.f("VPADDD %s, %s, %s", a.c("round16"), y(t), y(t))
		a.f("VPADDD %s, %s, %s", y(t), y(r), y(r))
	}
	return &codec{regs: 2, consts: []string{"highHalf", "nanBF16", "one32", "round16"},
		decode: func(a *asm, in int, out [2]int) {
			a.f("VPSLLD $16, %s, %s", y(in), y(out[0]))
			a.f("VPAND %s, %s, %s", a.c("highHalf"), y(in), y(out[1]))
		},
		encode: func(a *asm, in [2]int, out, t int) {
			round(a, in[0], t)
			round(a, in[1], t+1)
			a.f("VPSRLD $16, %s, %s", y(in[0]), y(in[0]))
			a.f("VPBLENDW $0xaa, %s, %s, %s", y(in[1]), y(in[0]), y(out))
		},
	}
}
