package elem

import "golang.org/x/sys/cpu"

func init() {
	if haveAVX {
		useAVX()
	}
}

// haveAVX says whether the processor has what the assembly uses, and the
// system saves its registers (which cpu looks at).
var haveAVX = cpu.X86.HasAVX2 && haveF16C()

// haveF16C asks the processor for its half conversions, which package cpu
// does not list.
func haveF16C() bool

func useAVX() {
	used, copyNT = avx, avxCopy
	for t := range numTypes {
		used[t].reduce[Avg] = used[t].reduce[Sum]
	}
}

// avxCopy needs 256 bytes at least.
//
//go:noescape
func avxCopy(dst, src []byte)
