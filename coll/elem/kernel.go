package elem

//go:generate go run ./gen

// A Kernel computes dst[i] = a[i] op b[i] for every element of dst. The three slices have
// the same length, a multiple of the element's size, and any alignment. dst may be the
// same memory as a or b, or both, but must not overlap either partially. A Kernel panics
// on lengths that differ, allocates nothing, and may be used by many goroutines at once.
// The runtime cannot preempt a Kernel: blocks of at most a megabyte keep the garbage
// collector from waiting.
type Kernel func(dst, a, b []byte)

// loops are the loops of one type.
type loops struct {
	reduce [numOps]Kernel
	stream Kernel // a sum with stores that bypass the caches; nil where there is none
	scale  func(dst, a []byte, scale uint64)
	scaled func(dst, a, b []byte, scale uint64)
}

// used contains the loops in use: the portable ones, until an init finds that the
// processor supports better ones.
var used = portable

// adopt puts the loops that are written in assembly to use. Unsigned integers have those of
// signed ones where the bits are the same: not for Max and Min.
func adopt(assembly [numTypes]loops) {
	for unsigned, signed := range map[Type]Type{Uint32: Int32, Uint64: Int64} {
		assembly[unsigned] = assembly[signed]
		assembly[unsigned].reduce[Max], assembly[unsigned].reduce[Min] = nil, nil
	}
	for t, l := range assembly {
		l.reduce[Avg] = l.reduce[Sum]
		for op, k := range l.reduce {
			if k != nil {
				used[t].reduce[op] = k
			}
		}
		if l.scale != nil {
			used[t].stream, used[t].scale, used[t].scaled = l.stream, l.scale, l.scaled
		}
	}
}

// KernelOf returns the loop for a type and a reduction, so that an operation looks it up
// only once. For Avg it returns Sum's loop: the caller scales and divides (ReduceScaled,
// Divide). It panics if t or op is invalid.
func KernelOf(t Type, op Op) Kernel {
	if !t.Valid() || !op.Valid() {
		panic("elem: no reduction " + op.String() + " of " + t.String())
	}
	return used[t].reduce[op]
}

// KernelNT is KernelOf for results that are not read soon and belong to memory larger
// than the caches, such as an operation's last step into a large buffer. On blocks of 16
// KiB and more its stores bypass the caches (non-temporal stores): 1.2 to 1.8 times as
// fast into cold memory, on Zen 4, and slower by as much if dst is read next. It returns
// KernelOf's loop where that does not help (for reductions other than sums, and in place),
// and where there is no such loop: on arm64, and for 8-bit types.
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
// Integers wrap. Floats are rounded to nearest even; 16- and 8-bit floats are computed in
// float32 first, which gives the same bits as rounding the exact result would. Maximum
// and minimum of floats are those of CUDA's fmax and fmin: a number wins over a NaN, and
// -0 is less than +0. A NaN result is stored as the NaN with every bit except the sign
// set, which NVIDIA's processors produce (except for Float64, where they keep the
// payload); so the bits depend neither on the operands' order nor on the machine. Float8
// results out of range, including infinities of e5m2, become the largest finite number,
// as in CUDA's conversion to these types (__NV_SATFINITE), which NCCL uses. A test
// compares all this with the results of an H200.
func Reduce(t Type, op Op, dst, a, b []byte) { KernelOf(t, op)(dst, a, b) }

// ReduceScaled computes dst[i] = a[i] + b[i]*scale, where b is a rank's own input: the
// pre-multiplied sum, and with scale 1/n a step of an average. As in NCCL, scale is
// converted to t first, and the product is rounded to t before it is added (no fused
// multiply-add). For integers, scale is truncated and clamped to the type's limits. dst
// may be a or b; Kernel's rules apply.
func ReduceScaled(t Type, dst, a, b []byte, scale float64) {
	used[t].scaled(dst, a, b, repeat(t, scale))
}

// Scale computes dst[i] = src[i]*scale, with ReduceScaled's conversions; dst
// may be src.
func Scale(t Type, dst, src []byte, scale float64) { used[t].scale(dst, src, repeat(t, scale)) }

// badLength is also called by the assembly.
func badLength() {
	panic("elem: dst and the inputs differ in length, or end within an element")
}
