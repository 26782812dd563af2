package coll

import (
	"fmt"
	"testing"
)

// Operations must not allocate: a pause of the collector at one rank is a
// pause of all.
func BenchmarkAllReduce(b *testing.B) {
	for _, n := range []int{2, 4} {
		for _, bytes := range []int{8, 1 << 10, 64 << 10, 4 << 20} {
			b.Run(fmt.Sprintf("ranks=%d/bytes=%d", n, bytes), func(b *testing.B) {
				benchmark(b, n, bytes, func(c *Comm, send, recv Buffer) error {
					return c.AllReduce(send, recv, bytes/4, Float32, Sum)
				})
			})
		}
	}
}

func benchmark(b *testing.B, n, bytes int, f func(c *Comm, send, recv Buffer) error) {
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	withRanks(b, n, testConfig(), func(c *Comm) error {
		send, err := Alloc(max(bytes, 1))
		if err != nil {
			return err
		}
		recv, err := Alloc(max(bytes, 1))
		if err != nil {
			return err
		}
		defer Free(send)
		defer Free(recv)
		for range 10 {
			if err := f(c, Bytes(send), Bytes(recv)); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			b.ResetTimer()
		}
		for range b.N {
			if err := f(c, Bytes(send), Bytes(recv)); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			b.StopTimer()
		}
		return nil
	})
}
