package elem

import "unsafe"

//go:generate go run ./gen

// A Kernel computes dst[i] = a[i] op b[i] for every element of dst. The three
// are of one length, a multiple of the element's size; at any alignment. dst
// may be the same memory as a or b, or both, but not overlap either in part.
// A Kernel panics on lengths that differ, allocates nothing, and may be used
// by many goroutines at once. The runtime cannot interrupt one: blocks of at
// most a megabyte keep the garbage collector from waiting.
type Kernel func(dst, a, b []byte)

// The loops in use: the portable ones, until an init finds that the processor
// has better.
var (
	reduces = portableReduce
	scales  = portableScale
	scaleds = portableScaled
	manys   = portableMany
	streams [numTypes]Kernel // sums that pass the caches by; nil where there is none
)

// KernelOf looks up the loop for a type and a reduction, so that an operation
// does it once. Avg gives Sum's loop: scaling and dividing are the caller's
// (ReduceScaled, Divide). It panics if t or op is none.
func KernelOf(t Type, op Op) Kernel {
	if !t.Valid() || !op.Valid() {
		panic("elem: no reduction " + op.String() + " of " + t.String())
	}
	return reduces[t][op]
}

// KernelNT is KernelOf for results that are not read soon and are part of more
// than the caches hold, such as an operation's last step into a large buffer.
// On blocks of 16 KiB and more its stores pass the caches by (non-temporal
// stores): 1.2 to 1.8 times as fast into cold memory, on Zen 4, and slower by
// as much if dst is read next. It gives KernelOf's loop where that does not
// help: for what is no sum, 8-bit floats, and in place.
func KernelNT(t Type, op Op) Kernel {
	k := KernelOf(t, op)
	if (op == Sum || op == Avg) && streams[t] != nil {
		return streams[t]
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
func ReduceScaled(t Type, dst, a, b []byte, scale float64) { scaleds[t](dst, a, b, repeat(t, scale)) }

// Scale computes dst[i] = src[i]*scale, with ReduceScaled's conversions; dst
// may be src.
func Scale(t Type, dst, src []byte, scale float64) { scales[t](dst, src, repeat(t, scale)) }

// ReduceN computes dst[i] = ((srcs[0][i] op srcs[1][i]) op srcs[2][i]) … in
// one pass. 16- and 8-bit floats are accumulated in float32 and rounded once,
// at the end, so the result may differ from that of repeated Reduce, for the
// better. dst may be the same memory as any of srcs. A single source is
// copied. It panics when there is none, or lengths differ.
func ReduceN(t Type, op Op, dst []byte, srcs [][]byte) {
	kernel := KernelOf(t, op)
	for _, s := range srcs {
		if len(s) != len(dst) {
			badLength()
		}
	}
	switch {
	case len(srcs) == 0:
		panic("elem: ReduceN of no sources")
	case len(srcs) == 1:
		copy(dst, srcs[0])
	case len(srcs) == 2:
		kernel(dst, srcs[0], srcs[1])
	case len(dst)%t.Size() != 0:
		badLength()
	case manys[t][op] != nil:
		manys[t][op](dst, srcs)
	default:
		fold(kernel, dst, srcs)
	}
}

// foldBlock is small enough for dst's block to stay in the first-level cache
// while the sources pass.
const foldBlock = 8 << 10

// fold reduces with a kernel whose order does not matter (integers; maximum
// and minimum): if dst is one of the sources, that one goes first, since the
// first step overwrites it.
func fold(kernel Kernel, dst []byte, srcs [][]byte) {
	first := 0
	for i, s := range srcs {
		if unsafe.SliceData(s) == unsafe.SliceData(dst) {
			first = i
		}
	}
	for off := 0; off < len(dst); off += foldBlock {
		end := min(off+foldBlock, len(dst))
		acc := srcs[first][off:end]
		for i, s := range srcs {
			if i == first {
				continue
			}
			kernel(dst[off:end], acc, s[off:end])
			acc = dst[off:end]
		}
	}
}

// badLength is also where the assembly goes.
func badLength() {
	panic("elem: dst and the inputs differ in length, or end within an element")
}
