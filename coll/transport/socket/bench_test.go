package socket

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
)

var variants = []struct {
	name string
	opt  Options
}{
	{"streams=1", Options{}},
	{"streams=4", Options{PerThread: 4}},
	{"helpers=1", Options{Threads: 1, PerThread: 1}},
}

// BenchmarkPingPong is half a round trip over the loopback.
func BenchmarkPingPong(b *testing.B) {
	for _, v := range variants {
		for _, size := range []int{8, 8 << 10, 64 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("%s/bytes=%d", v.name, size), func(b *testing.B) {
				ranks := opener(v.opt)(b, 2)
				tx, rx := connect(b, ranks, 0, 1)
				back, xr := connect(b, ranks, 1, 0)
				var wg sync.WaitGroup
				side := func(tx *Tx, rx *Rx, first bool) {
					buf, into := make([]byte, size), make([]byte, size)
					for i := range 2 * b.N {
						if first == (i%2 == 0) {
							spin(func() bool { return tx.Post(buf, transport.Header{}) })
							spin(tx.Idle)
							continue
						}
						rx.Post(into)
						spin(func() bool { _, _, ok := rx.Done(); return ok })
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				wg.Go(func() { side(back, rx, false) })
				side(tx, xr, true)
				wg.Wait()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half")
			})
		}
	}
}

// BenchmarkStream is one direction over the loopback.
func BenchmarkStream(b *testing.B) {
	for _, v := range variants {
		for _, size := range []int{8, 8 << 10, 128 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("%s/bytes=%d", v.name, size), func(b *testing.B) {
				ranks := opener(v.opt)(b, 2)
				tx, rx := connect(b, ranks, 0, 1)
				buf, into := make([]byte, size), make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				wg.Go(func() {
					for range b.N {
						rx.Post(into)
						spin(func() bool { _, _, ok := rx.Done(); return ok })
					}
				})
				for range b.N {
					spin(func() bool { return tx.Post(buf, transport.Header{}) })
				}
				spin(tx.Idle)
				wg.Wait()
			})
		}
	}
}

// spin polls, as an executor does.
func spin(f func() bool) {
	for i := 1; !f(); i++ {
		if i%100 == 0 {
			runtime.Gosched()
		}
	}
}
