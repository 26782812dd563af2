//go:build cgo

package netplugin_test

import (
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
		"socket": transporttest.Each(func(t testing.TB, r int) transporttest.Rank {
			f := new(transport.Fault)
			e, err := socket.Open(socket.Options{Rank: r, Key: testKey, Comm: []byte("test"), Fault: f})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			return transporttest.Rank{Endpoint: e, Fault: f}
		}),
	}
}

func BenchmarkPingPong(b *testing.B) { transporttest.PingPong(b, networks(b)) }

func BenchmarkStream(b *testing.B) { transporttest.Stream(b, networks(b)) }
