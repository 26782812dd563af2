//go:build cgo

package netplugintest

import (
	"bytes"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/transport/netplugin"
)

// testPatience: connect and accept do not wait.
func testPatience(t *testing.T, n *netplugin.Net, device int) {
	l, err := n.Listen(device)
	check(t, err)
	start := time.Now()
	soon(t, "accept", func() error {
		_, err := l.Accept()
		return err
	})
	if d := time.Since(start); d > time.Second {
		broken(t, "accept", "it does not block; it took %v", d)
	}
	check(t, l.Close())
	p := begin(t, n, device)
	if p.connected > 5*time.Second {
		broken(t, "connect or accept", "it does not block; it took %v", p.connected)
	}
	p.end()
}

func testSizes(t *testing.T, n *netplugin.Net, device int) {
	const most = 4 << 20
	p := connect(t, n, device, most)
	defer p.end()
	for i, size := range []int{0, 1, 3, 8, 63, 64, 100, 1000, 4096, 8191, 8192, 65536, 1<<20 + 1, most} {
		fill(p.out[:size], i)
		clear(p.in)
		s, r := p.sending(p.out[:size], 1), p.receiving(p.in[:size], 1)
		p.all(s, r)
		arrived(t, r, p.out[:size])
	}
}

// testLarger: a receive accepts a shorter message, and does not touch the memory after
// it.
func testLarger(t *testing.T, n *netplugin.Net, device int) {
	p := connect(t, n, device, 100_000)
	defer p.end()
	for i, size := range []int{0, 1, 1000, 50_000, 99_999} {
		fill(p.out[:size], i)
		fill(p.in, 99)
		behind := bytes.Clone(p.in[size:])
		s, r := p.sending(p.out[:size], 1), p.receiving(p.in, 1)
		p.all(s, r)
		arrived(t, r, p.out[:size])
		if !bytes.Equal(p.in[size:], behind) {
			broken(t, "irecv", "memory behind a message of %d bytes in a receive of %d is not touched", size, len(p.in))
		}
	}
}

// testRequests: the number of requests that the interface promises can be pending at
// once, repeatedly.
func testRequests(t *testing.T, n *netplugin.Net, device int) {
	const size = 3000
	p := connect(t, n, device, netplugin.MaxRequests*size)
	defer p.end()
	for round := range 4 {
		fill(p.out, round)
		clear(p.in)
		var receives, sends []*call
		for i := range netplugin.MaxRequests {
			receives = append(receives, p.receiving(p.in[i*size:][:size], 1))
			sends = append(sends, p.sending(p.out[i*size:][:size], 1))
		}
		p.until("irecv takes 32 requests", func() bool {
			return !slices.ContainsFunc(receives, func(k *call) bool { return !k.begin(t) })
		})
		p.all(append(sends, receives...)...)
		for i, k := range receives {
			arrived(t, k, p.out[i*size:][:size])
		}
	}
}

// testOrder: messages of one tag are received in the order in which they were sent, in
// whatever order the receives are tested.
func testOrder(t *testing.T, n *netplugin.Net, device int) {
	const count, size = 16, 2000
	p := connect(t, n, device, count*size)
	defer p.end()
	for _, first := range []string{"irecv", "isend"} {
		clear(p.in)
		fill(p.out, len(first))
		var calls []*call
		for i := range count { // tested from the last to the first
			receive, send := p.receiving(p.in[i*size:][:size], 7), p.sending(p.out[i*size:][:size-i], 7)
			if first == "irecv" {
				calls = append(calls, receive, send)
			} else {
				calls = append(calls, send, receive)
			}
		}
		p.all(calls...)
		for i, k := range calls {
			if k.name == "irecv" {
				i /= 2
				if k.n != size-i {
					broken(t, "irecv", "messages of one tag come in order: receive %d got one of %d bytes; want %d", i, k.n, size-i)
				}
				arrived(t, k, p.out[i*size:][:size-i])
			}
		}
	}
}

// testRegions: memory can be registered in parts and repeatedly, and messages may begin
// anywhere in it.
func testRegions(t *testing.T, n *netplugin.Net, device int) {
	p := connect(t, n, device, 1<<20)
	defer p.end()
	more := make([]byte, 10_000)
	var pin runtime.Pinner
	pin.Pin(&more[0])
	defer pin.Unpin()
	for range 3 {
		region, err := p.send.Register(more)
		check(t, err)
		fill(more, 5)
		s, r := p.sending(more[17:8000], 1), p.receiving(p.in[13:][:8000], 1)
		s.r = region
		p.all(s, r)
		arrived(t, r, more[17:8000])
		check(t, p.send.Deregister(region))
	}
}

// testConnections: several connections of a device do not mix.
func testConnections(t *testing.T, n *netplugin.Net, device int) {
	var pairs []*pair
	var calls []*call
	for i := range min(8, n.Devices()[device].MaxComms) {
		p := connect(t, n, device, 5000)
		fill(p.out, i)
		pairs = append(pairs, p)
		calls = append(calls, p.sending(p.out, 1), p.receiving(p.in, 1))
	}
	pairs[0].until("requests of all connections", func() bool {
		done := true
		for _, k := range calls {
			done = k.try(t) && done
		}
		return done
	})
	for i, p := range pairs {
		arrived(t, calls[2*i+1], p.out)
		p.end()
	}
}

// testClose: the objects of a connection can be closed in any order.
func testClose(t *testing.T, n *netplugin.Net, device int) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		p := connect(t, n, device, 1000)
		p.all(p.sending(p.out, 1), p.receiving(p.in, 1))
		check(t, p.send.Deregister(p.ro))
		check(t, p.recv.Deregister(p.ri))
		for _, i := range order {
			check(t, []func() error{p.send.Close, p.recv.Close, p.l.Close}[i]())
		}
		p.pin.Unpin()
	}
}
