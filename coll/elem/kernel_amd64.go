package elem

import "golang.org/x/sys/cpu"

func init() {
	if haveAVX {
		adopt(avx)
		copyNT = avxCopy
	}
}

// haveAVX reports whether the processor has the instructions that the assembly uses, and
// the system saves its registers (which package cpu checks).
var haveAVX = cpu.X86.HasAVX2 && haveF16C()

// haveF16C queries the processor for its half conversions, which package cpu does not
// list.
func haveF16C() bool

// avxCopy needs at least 256 bytes.
//
//go:noescape
func avxCopy(dst, src []byte)
