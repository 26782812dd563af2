//go:build cgo

package netplugin_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/netplugin"
	"github.com/assay-hpc/assay/coll/transport/netplugin/netplugintest"
	"github.com/assay-hpc/assay/coll/transport/socket"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
)

// networks are our own TCP and, for what a plugin adds to it, the test plugin's.
func networks(b *testing.B) map[string]transporttest.Opener {
	file := netplugintest.Build(b)
	return map[string]transporttest.Opener{
		"plugin": opener(file, netplugin.Options{}),
		"socket": func(t testing.TB, n int) (ranks []transporttest.Rank) {
			for r := range n {
				f := new(transport.Fault)
				e, err := socket.Open(socket.Options{Rank: r, Key: testKey, Comm: []byte("test"), Fault: f})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { e.Close() })
				ranks = append(ranks, transporttest.Rank{Endpoint: e, Fault: f})
			}
			return ranks
		},
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

// BenchmarkPingPong is half a round trip over the loopback, through slots.
func BenchmarkPingPong(b *testing.B) {
	for name, open := range networks(b) {
		for _, size := range []int{8, 8 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
				ranks := open(b, 2)
				tx, rx := connectTo(b, ranks, 0, 1)
				back, xr := connectTo(b, ranks, 1, 0)
				side := func(tx transport.Tx, rx transport.Rx, first bool) {
					for i := range 2 * b.N {
						if first == (i%2 == 0) {
							spin(func() bool { return tx.Reserve(size) != nil })
							tx.Commit(size, transport.Header{})
							spin(tx.Idle)
							continue
						}
						spin(func() bool { _, _, ok := rx.Peek(); return ok })
						rx.Release()
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				wg.Go(func() { side(back, rx, false) })
				side(tx, xr, true)
				wg.Wait()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half")
			})
		}
	}
}
