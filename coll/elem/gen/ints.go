package main

// A body computes out = a op b on one unit of packed elements.
type body struct {
	consts []string // those worth a register, most used first
	emit   func(a *asm, out, x, y int)
}

// ops are the reductions, in elem's order.
var ops = []string{"Sum", "Prod", "Max", "Min"}

// elemType describes a type to the templates.
type elemType struct {
	name    string // as elem's constant
	size    int    // bytes of an element
	unit    int    // bytes of packed elements that one vector body processes
	unroll  int    // units per iteration of the main loop
	body    [4]body
	sameAs  [4]string // the kernel of another type that gives the same bits
	scaleAs string    // likewise for scaling
}

// streams reports whether a type has a sum with stores that bypass the caches.
func (t elemType) streams() bool { return t.sameAs[0] == "" && t.unit >= 16 }

func types() []elemType {
	return append(intTypes(), floatTypes()...)
}

func intTypes() []elemType {
	u := func(name, as string, size int, minMax [2]body) elemType {
		return elemType{name: name, size: size, unit: 32, unroll: 4, scaleAs: as,
			body: [4]body{2: minMax[0], 3: minMax[1]}, sameAs: [4]string{"avxSum" + as, "avxProd" + as}}
	}
	return []elemType{
		{name: "Int8", size: 1, unit: 32, unroll: 4, body: [4]body{one("VPADDB"), mul8(), one("VPMAXSB"), one("VPMINSB")}},
		u("Uint8", "Int8", 1, [2]body{one("VPMAXUB"), one("VPMINUB")}),
		{name: "Int32", size: 4, unit: 32, unroll: 4, body: [4]body{one("VPADDD"), one("VPMULLD"), one("VPMAXSD"), one("VPMINSD")}},
		u("Uint32", "Int32", 4, [2]body{one("VPMAXUD"), one("VPMINUD")}),
		{name: "Int64", size: 8, unit: 32, unroll: 4, body: [4]body{one("VPADDQ"), mul64(), pick64(false, true), pick64(false, false)}},
		u("Uint64", "Int64", 8, [2]body{pick64(true, true), pick64(true, false)}),
	}
}

// one is a body of one instruction.
func one(ins string) body {
	return body{emit: func(a *asm, out, p, q int) { a.f("%s %s, %s, %s", ins, y(q), y(p), y(out)) }}
}

// mul8 multiplies even and odd bytes separately, as 16-bit words: the low byte of a
// word's product needs only the words' low bytes.
func mul8() body {
	return body{consts: []string{"lowBytes"}, emit: func(a *asm, out, p, q int) {
		t, u := y(tmp0), y(tmp0+1)
		a.f("VPMULLW %s, %s, %s", y(q), y(p), y(out))
		a.f("VPAND %s, %s, %s", a.c("lowBytes"), y(out), y(out))
		a.f("VPSRLW $8, %s, %s", y(p), t)
		a.f("VPSRLW $8, %s, %s", y(q), u)
		a.f("VPMULLW %s, %s, %s", u, t, t)
		a.f("VPSLLW $8, %s, %s", t, t)
		a.f("VPOR %s, %s, %s", t, y(out), y(out))
	}}
}

// mul64 computes the low 64 bits of 64-bit products: low halves in full, and the cross
// products' low 32 bits on top.
func mul64() body {
	return body{emit: func(a *asm, out, p, q int) {
		t, u := y(tmp0), y(tmp0+1)
		a.f("VPSHUFD $0xb1, %s, %s", y(q), t)
		a.f("VPMULLD %s, %s, %s", y(p), t, t)
		a.f("VPSRLQ $32, %s, %s", t, u)
		a.f("VPADDD %s, %s, %s", u, t, t)
		a.f("VPSLLQ $32, %s, %s", t, t)
		a.f("VPMULUDQ %s, %s, %s", y(q), y(p), u)
		a.f("VPADDQ %s, %s, %s", u, t, y(out))
	}}
}

// pick64 selects the larger or smaller of 64-bit integers. AVX2 has only signed
// comparisons: unsigned integers are compared with their top bits flipped.
func pick64(unsigned, larger bool) body {
	b := body{emit: func(a *asm, out, p, q int) {
		t, u := y(tmp0), y(tmp0+1)
		cp, cq := y(p), y(q)
		if unsigned {
			a.f("VPXOR %s, %s, %s", a.c("sign64"), cp, t)
			a.f("VPXOR %s, %s, %s", a.c("sign64"), cq, u)
			cp, cq = t, u
		}
		a.f("VPCMPGTQ %s, %s, %s", cq, cp, t)
		if larger {
			a.f("VBLENDVPD %s, %s, %s, %s", t, y(p), y(q), y(out))
		} else {
			a.f("VBLENDVPD %s, %s, %s, %s", t, y(q), y(p), y(out))
		}
	}}
	if unsigned {
		b.consts = []string{"sign64"}
	}
	return b
}

// scaledBody adds the second input times the pattern to the first, with the product
// rounded to the type.
func (t elemType) scaledBody() body {
	return body{consts: t.body[1].consts, emit: func(a *asm, out, p, q int) {
		t.body[1].emit(a, regProduct, q, regPattern)
		t.body[0].emit(a, out, p, regProduct)
	}}
}
