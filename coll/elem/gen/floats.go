package main

// codec converts packed narrow floats to registers of float32, and back.
type codec struct {
	regs   int // registers that a unit fills: 1 or 2
	consts []string
	decode func(a *asm, in int, out [2]int, t int) // may use temporary t
	encode func(a *asm, in [2]int, out int, t int) // may use temporaries t, t+1, t+2 and change in
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
	narrow := func(name string, size, unit int, c *codec) elemType {
		t := elemType{name: name, size: size, unit: unit, unroll: 1}
		for i := range ops {
			t.body[i] = body{consts: c.consts, emit: func(a *asm, out, p, q int) {
				l, r := [2]int{tmp0, tmp0 + 1}, [2]int{tmp0 + 2, tmp0 + 3}
				c.decode(a, p, l, tmp0+4)
				c.decode(a, q, r, tmp0+4)
				for k := range c.regs {
					arith(a, i, "PS", l[k], l[k], r[k], tmp0+4, tmp0+5)
				}
				c.encode(a, l, out, tmp0+2)
			}}
		}
		return t
	}
	return []elemType{
		narrow("Float16", 2, 16, float16()),
		full("Float32", 4, "PS", "nan32"),
		full("Float64", 8, "PD", "nan64"),
		narrow("BFloat16", 2, 32, bfloat16()),
		narrow("Float8E4M3", 1, 8, float8("E4M3", 3)),
		narrow("Float8E5M2", 1, 8, float8("E5M2", 2)),
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
		decode: func(a *asm, in int, out [2]int, _ int) { a.f("VCVTPH2PS %s, %s", x(in), y(out[0])) },
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
		decode: func(a *asm, in int, out [2]int, _ int) {
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

// float8 decodes through half: e5m2 is a half's upper byte; e4m3 has one exponent bit
// less, so that a factor of 2^8 is missing, and a NaN of its own.
func float8(name string, fraction int) *codec {
	e4m3 := name == "E4M3"
	c := &codec{regs: 1, consts: []string{"abs32", "one32", "round" + name, "magic" + name}}
	c.decode = func(a *asm, in int, out [2]int, t int) {
		w, u := x(out[0]), x(t)
		if !e4m3 {
			a.f("VPMOVZXBW %s, %s", x(in), w)
			a.f("VPSLLW $8, %s, %s", w, w)
			a.f("VCVTPH2PS %s, %s", w, y(out[0]))
			return
		}
		a.f("VPMOVSXBW %s, %s", x(in), w)
		a.f("VPAND mag8x16<>(SB), %s, %s", w, u)
		a.f("VPCMPEQW mag8x16<>(SB), %s, %s", u, u) // NaN
		a.f("VPSLLW $7, %s, %s", w, w)
		a.f("VPAND noBit14<>(SB), %s, %s", w, w)
		a.f("VPOR %s, %s, %s", u, w, w)
		a.f("VCVTPH2PS %s, %s", w, y(out[0]))
		a.f("VMULPS %s, %s, %s", a.c("two8"), y(out[0]), y(out[0]))
		a.consts["mag8x16"], a.consts["noBit14"] = true, true
	}
	c.encode = func(a *asm, in [2]int, out, t int) {
		r, abs, n, u := y(in[0]), y(in[1]), y(t), y(t+1)
		m := y(t + 2)
		shift := 23 - fraction
		a.f("VPAND %s, %s, %s", a.c("abs32"), r, abs)
		a.f("VMINPS %s, %s, %s", a.c("max"+name), abs, abs)
		a.f("VPSRLD $%d, %s, %s", shift, abs, n) // normal numbers: round the bits
		a.f("VPAND %s, %s, %s", a.c("one32"), n, n)
		a.f("VPADDD %s, %s, %s", a.c("round"+name), n, n)
		a.f("VPADDD %s, %s, %s", abs, n, n)
		a.f("VPSRLD $%d, %s, %s", shift, n, n)
		a.f("VADDPS %s, %s, %s", a.c("magic"+name), abs, u) // subnormal ones: let an addition round
		a.f("VPSUBD %s, %s, %s", a.c("magic"+name), u, u)
		a.f("VCMPPS $1, %s, %s, %s", a.c("min"+name), abs, m)
		a.f("VBLENDVPS %s, %s, %s, %s", m, u, n, n)
		a.f("VPSRLD $31, %s, %s", r, u)
		a.f("VPSLLD $7, %s, %s", u, u)
		a.f("VPOR %s, %s, %s", u, n, n)
		a.f("VCMPPS $3, %s, %s, %s", r, r, m)
		a.f("VBLENDVPS %s, %s, %s, %s", m, a.c("nan8"), n, n)
		a.f("VEXTRACTI128 $1, %s, %s", n, x(t+1))
		a.f("VPACKUSDW %s, %s, %s", x(t+1), x(t), x(out))
		a.f("VPACKUSWB %s, %s, %s", x(out), x(out), x(out))
	}
	return c
}
