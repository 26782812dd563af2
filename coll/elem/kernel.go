package elem

//go:generate go run ./gen

// A Kernel computes dst[i] = a[i] op b[i] for every element of dst. The three
// are of one length, a multiple of the element's size; at any alignment. dst
// may be the same memory as a or b, or both, but not overlap either in part.
// A Kernel panics on lengths that differ, allocates nothing, and may be used
// by many goroutines at once. The runtime cannot interrupt one: blocks of at
// most a megabyte keep the garbage collector from waiting.
type Kernel func(dst, a, b []byte)

// loops are those of one type.
type loops struct {
	reduce [numOps]Kernel
	stream Kernel // a sum that passes the caches by; nil where there is none
	scale  func(dst, a []byte, scale uint64)
	scaled func(dst, a, b []byte, scale uint64)
}

// used are the loops in use: the portable ones, until an init finds that the
// processor has better.
var used = portable

// KernelOf looks up the loop for a type and a reduction, so that an operation
// does it once. Avg gives Sum's loop: scaling and dividing are the caller's
// (ReduceScaled, Divide). It panics if t or op is none.
func KernelOf(t Type, op Op) Kernel {
	if !t.Valid() || !op.Valid() {
		panic("elem: no reduction " + op.String() + " of " + t.String())
	}
	return used[t].reduce[op]
}

// KernelNT is KernelOf for results that are not read soon and are part of more
// than the caches hold, such as an operation's last step into a large buffer.
// On blocks of 16 KiB and more its stores pass the caches by (non-temporal
// stores): 1.2 to 1.8 times as fast into cold memory, on Zen 4, and slower by
// as much if dst is read next. It gives KernelOf's loop where that does not
// help: for what is no sum, 8-bit floats, and in place.
func KernelNT(t Type, op Op) Kernel {
	k := KernelOf(t, op)
	if s := used[t].stream; (op == Sum || op == Avg) && s != nil {
		return s
	}
	return k
}

// Reduce computes dst[i] = a[i] op b[i] for len(dst)/t.Size() elements, under
// Kernel's rules. Avg is treated as Sum.
//
// Integers wrap. Floats are rounded to nearest even; 16- and 8-bit ones are
// computed in float32 first, which gives the same bits as rounding the exact
// result would. Maximum and minimum of floats are those of CUDA's fmax and
// fmin: a number wins over a NaN, and -0 is less than +0. A result that is NaN
// is stored as the NaN with every bit but the sign set, the one that NVIDIA's
// processors make (but for Float64, whose payload they keep); so the bits
// depend neither on the operands' order nor on the machine. Float8 results out
// of range, infinities of e5m2 among them, become the largest finite number,
// as in CUDA's conversion to these types (__NV_SATFINITE), which NCCL uses.
// A test compares all this with what an H200 gave.
func Reduce(t Type, op Op, dst, a, b []byte) { KernelOf(t, op)(dst, a, b) }

// ReduceScaled computes dst[i] = a[i] + b[i]*scale, b being a rank's own
// input: the pre-multiplied sum, and with scale 1/n a step of an average. As
// in NCCL scale is converted to t first, and the product is rounded to t
// before it is added (no fused multiply-add). For integers scale is truncated,
// and cut off at the type's limits. dst may be a or b; Kernel's rules apply.
func ReduceScaled(t Type, dst, a, b []byte, scale float64) {
	used[t].scaled(dst, a, b, repeat(t, scale))
}

// Scale computes dst[i] = src[i]*scale, with ReduceScaled's conversions; dst
// may be src.
func Scale(t Type, dst, src []byte, scale float64) { used[t].scale(dst, src, repeat(t, scale)) }

// badLength is also where the assembly goes.
func badLength() {
	panic("elem: dst and the inputs differ in length, or end within an element")
}
