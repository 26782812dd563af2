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

// PingPong measures half a round trip over each of the networks.
func PingPong(b *testing.B, networks map[string]Opener) {
	each(b, networks, []int{8, 8 << 10, 64 << 10, 512 << 10}, func(b *testing.B, ranks []Rank, size int) {
		tx, rx := Connect(b, ranks, 0, 1, 0)
		back, xr := Connect(b, ranks, 1, 0, 0)
		side := func(tx transport.Tx, rx transport.Rx, first bool) {
			buf := make([]byte, size)
			for i := range 2 * b.N {
				if first == (i%2 == 0) {
					push(tx, buf)
					spin(tx.Idle)
				} else {
					pull(rx, buf)
				}
			}
		}
		var wg sync.WaitGroup
		b.ResetTimer()
		wg.Go(func() { side(back, rx, false) })
		side(tx, xr, true)
		wg.Wait()
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half")
	})
}

// Stream measures the bandwidth of one connection over each of the networks, in one
// direction.
func Stream(b *testing.B, networks map[string]Opener) {
	each(b, networks, []int{8, 8 << 10, 128 << 10, 512 << 10}, func(b *testing.B, ranks []Rank, size int) {
		tx, rx := Connect(b, ranks, 0, 1, 0)
		b.SetBytes(int64(size))
		b.ResetTimer()
		var wg sync.WaitGroup
		wg.Go(func() {
			buf := make([]byte, size)
			for range b.N {
				pull(rx, buf)
			}
		})
		buf := make([]byte, size)
		for range b.N {
			push(tx, buf)
		}
		spin(tx.Idle)
		wg.Wait()
	})
}

// each measures two ranks of each network with messages of each size, in bytes.
func each(b *testing.B, networks map[string]Opener, sizes []int, measure func(b *testing.B, ranks []Rank, size int)) {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		for _, size := range sizes {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
				ranks := networks[name](b, 2)
				b.ReportAllocs()
				measure(b, ranks, size)
			})
		}
	}
}

// push and pull move a message without a copy where the transport can, else through a slot.
func push(tx transport.Tx, buf []byte) {
	if tx.Direct() {
		spin(func() bool { return tx.Post(buf, transport.Header{}) })
		return
	}
	spin(func() bool { return tx.Reserve(len(buf)) != nil })
	tx.Commit(len(buf), transport.Header{})
	spin(tx.Idle)
}

func pull(rx transport.Rx, buf []byte) {
	if rx.Direct() {
		rx.Post(buf)
		spin(func() bool { _, _, ok := rx.Done(); return ok })
		return
	}
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
