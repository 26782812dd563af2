//go:build cgo && linux

package verbs_test

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/socket"
	"github.com/assay-hpc/assay/coll/transport/transporttest"
	"github.com/assay-hpc/assay/coll/transport/verbs"
)

// networks are this one and, for what it adds to it, TCP. In the virtual
// machine both use the wire between two interfaces, as far as TCP does.
var networks = map[string]transporttest.Opener{
	"IB":     opener(verbs.Options{}),
	"Socket": openSockets,
}

func openSockets(t testing.TB, n int) (ranks []transporttest.Rank) {
	for r := range n {
		f := new(transport.Fault)
		o := socket.Options{Rank: r, Key: testKey, Comm: []byte("test"), Fault: f}
		if os.Getenv("ASSAY_RDMA_VM") != "" {
			o.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, byte(1 + r%2)})}
		}
		e, err := socket.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		ranks = append(ranks, transporttest.Rank{Endpoint: e, Fault: f})
	}
	return ranks
}

// spin polls, as an executor does.
func spin(f func() bool) {
	for i := 1; !f(); i++ {
		if i%100 == 0 {
			runtime.Gosched()
		}
	}
}

// BenchmarkPingPong is half a round trip, through slots.
func BenchmarkPingPong(b *testing.B) {
	for name, open := range networks {
		for _, size := range []int{8, 8 << 10, 512 << 10} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
				ranks := open(b, 2)
				tx, rx := connect(b, ranks, 0, 1)
				back, xr := connect(b, ranks, 1, 0)
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

// BenchmarkStream is the bandwidth of one connection, in one direction.
func BenchmarkStream(b *testing.B) {
	const size = 512 << 10
	for name, open := range networks {
		b.Run(name, func(b *testing.B) {
			ranks := open(b, 2)
			tx, rx := connect(b, ranks, 0, 1)
			b.SetBytes(size)
			b.ResetTimer()
			var wg sync.WaitGroup
			wg.Go(func() {
				for range b.N {
					spin(func() bool { _, _, ok := rx.Peek(); return ok })
					rx.Release()
				}
			})
			for range b.N {
				spin(func() bool { return tx.Reserve(size) != nil })
				tx.Commit(size, transport.Header{})
				spin(tx.Idle)
			}
			wg.Wait()
		})
	}
}
