package elem

import (
	"fmt"
	"testing"
)

var benchSizes = []struct {
	name string
	n    int
}{{"8B", 8}, {"64B", 64}, {"4KB", 4 << 10}, {"64KB", 64 << 10}, {"16MB", 16 << 20}}

var sink []byte

func bench(b *testing.B, name string, f func(dst, x, y []byte)) {
	for _, s := range benchSizes {
		b.Run(fmt.Sprintf("%s/bytes=%s", name, s.name), func(b *testing.B) {
			dst, x, y := make([]byte, s.n), make([]byte, s.n), make([]byte, s.n)
			for i := range x {
				x[i], y[i], dst[i] = 0x30, 0x31, 1
			}
			sink = dst
			b.SetBytes(int64(s.n))
			for b.Loop() {
				f(dst, x, y)
			}
		})
	}
}

func BenchmarkReduce(b *testing.B) {
	for _, op := range []Op{Sum, Prod, Max} {
		for _, ty := range Types {
			bench(b, fmt.Sprintf("op=%v/type=%v", op, ty), KernelOf(ty, op))
		}
	}
}

func BenchmarkPortable(b *testing.B) {
	for _, ty := range []Type{Float32, BFloat16, Float16, Int32, Int64} {
		bench(b, fmt.Sprintf("type=%v", ty), portable[ty].reduce[Sum])
	}
}

func BenchmarkScaled(b *testing.B) {
	for _, ty := range []Type{Float32, BFloat16} {
		bench(b, fmt.Sprintf("type=%v", ty), func(dst, x, y []byte) { ReduceScaled(ty, dst, x, y, 0.25) })
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, ty := range []Type{Int8, Int32, Int64} {
		bench(b, fmt.Sprintf("type=%v", ty), func(dst, _, _ []byte) { Divide(ty, dst, 3) })
	}
}

func BenchmarkCopy(b *testing.B) {
	bench(b, "by=elem", func(dst, x, _ []byte) { Copy(dst, x) })
	bench(b, "by=go", func(dst, x, _ []byte) { copy(dst, x) })
}

// BenchmarkCold walks through memory far larger than the caches in blocks, as
// the last step of a large operation does; the first source is the same block
// over and over. KernelNT and CopyNT rest on it.
func BenchmarkCold(b *testing.B) {
	const total = 128 << 20
	dst, y := make([]byte, total), make([]byte, total)
	for i := range dst {
		dst[i], y[i] = 1, 2
	}
	for _, block := range []int{4 << 10, 16 << 10, 256 << 10, 1 << 20} {
		x := make([]byte, block)
		for name, f := range map[string]Kernel{
			"copy":   func(dst, x, _ []byte) { Copy(dst, x) },
			"copyNT": func(dst, x, _ []byte) { CopyNT(dst, x) },
			"sum":    KernelOf(Float32, Sum),
			"sumNT":  KernelNT(Float32, Sum),
		} {
			b.Run(fmt.Sprintf("do=%s/block=%d", name, block), func(b *testing.B) {
				b.SetBytes(total)
				for b.Loop() {
					for off := 0; off < total; off += block {
						f(dst[off:off+block], x, y[off:off+block])
					}
				}
			})
		}
	}
}
