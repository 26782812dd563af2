//go:build cgo && linux

package verbs_test

import (
	"net/netip"
	"os"
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
	"Socket": transporttest.Each(openSocket),
}

func openSocket(t testing.TB, r int) transporttest.Rank {
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
	return transporttest.Rank{Endpoint: e, Fault: f}
}

func BenchmarkPingPong(b *testing.B) { transporttest.PingPong(b, networks) }

func BenchmarkStream(b *testing.B) { transporttest.Stream(b, networks) }
