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
	name   string // as elem's constant
	size   int    // bytes of an element
	unit   int    // bytes of packed elements that one vector body processes
	unroll int    // units per iteration of the main loop
	body   [4]body
}

func types() []elemType {
	return append(intTypes(), floatTypes()...)
}

func intTypes() []elemType {
	return []elemType{
		{name: "Int32", size: 4, unit: 32, unroll: 4, body: [4]body{one("VPADDD"), one("VPMULLD"), one("VPMAXSD"), one("VPMINSD")}},
		{name: "Int64", size: 8, unit: 32, unroll: 4, body: [4]body{one("VPADDQ"), mul64(), pick64(true), pick64(false)}},
	}
}

// one is a body of one instruction.
func one(ins string) body {
	return body{emit: func(a *asm, out, p, q int) { a.f("%s %s, %s, %s", ins, y(q), y(p), y(out)) }}
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

// pick64 selects the larger or smaller of 64-bit integers.
func pick64(larger bool) body {
	return body{emit: func(a *asm, out, p, q int) {
		a.f("VPCMPGTQ %s, %s, %s", y(q), y(p), y(tmp0))
		if !larger {
			p, q = q, p
		}
		a.f("VBLENDVPD %s, %s, %s, %s", y(tmp0), y(p), y(q), y(out))
	}}
}

// scaledBody adds the second input times the pattern to the first, with the product
// rounded to the type.
func (t elemType) scaledBody() body {
	return body{consts: t.body[1].consts, emit: func(a *asm, out, p, q int) {
		t.body[1].emit(a, regProduct, q, regPattern)
		t.body[0].emit(a, out, p, regProduct)
	}}
}
