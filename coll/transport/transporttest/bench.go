package transporttest

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
)

// PingPong measures half a round trip over each of the networks, through slots.
func PingPong(b *testing.B, networks map[string]Opener) {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		for _, size := range []int{8, 8 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) { pingPong(b, networks[name], size) })
		}
	}
}

func pingPong(b *testing.B, open Opener, size int) {
	ranks := open(b, 2)
	tx, rx := connect(b, ranks, 0, 1, 0)
	back, xr := connect(b, ranks, 1, 0, 0)
	side := func(tx transport.Tx, rx transport.Rx, first bool) {
		for i := range 2 * b.N {
			if first == (i%2 == 0) {
				push(tx, size)
			} else {
				pull(rx)
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	wg.Go(func() { side(back, rx, false) })
	side(tx, xr, true)
	wg.Wait()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half")
}

// Stream measures the bandwidth of one connection over each of the networks, in one
// direction.
func Stream(b *testing.B, networks map[string]Opener) {
	const size = 512 << 10
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		b.Run(name, func(b *testing.B) {
			ranks := networks[name](b, 2)
			tx, rx := connect(b, ranks, 0, 1, 0)
			b.SetBytes(size)
			b.ResetTimer()
			var wg sync.WaitGroup
			wg.Go(func() {
				for range b.N {
					pull(rx)
				}
			})
			for range b.N {
				push(tx, size)
			}
			wg.Wait()
		})
	}
}

func push(tx transport.Tx, size int) {
	spin(func() bool { return tx.Reserve(size) != nil })
	tx.Commit(size, transport.Header{})
	spin(tx.Idle)
}

func pull(rx transport.Rx) {
	spin(func() bool { _, _, ok := rx.Peek(); return ok })
	rx.Release()
}

// spin polls, as an executor does.
func spin(f func() bool) {
	for i := 1; !f(); i++ {
		if i%100 == 0 {
			runtime.Gosched()
		}
	}
}
