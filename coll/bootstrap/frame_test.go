package bootstrap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/internal/meet"
)

func FuzzHello(f *testing.F) {
	f.Add(hello{purpose: toPeer, from: 3, to: 2, size: 9}.encode())
	f.Add(hello{purpose: toRoot, from: -1, to: nobodyRank, size: 1 << 30}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Errorf("%x is taken for %x", b, h.encode())
		}
	})
}

// TestIDSaysNoSecret: an ID does not print it.
func TestIDSaysNoSecret(t *testing.T) {
	id := newTestRoot(t, local()).ID()
	for _, s := range []string{id.String(), fmt.Sprint(id), fmt.Sprintf("%v %+v %#v %s", id, id, id, id)} {
		if strings.Contains(s, fmt.Sprintf("%x", id.secret()[:4])) || strings.Contains(s, fmt.Sprintf("%v", id.secret()[:4])) || !strings.Contains(s, "127.0.0.1:") {
			t.Errorf("the ID prints as %s", s)
		}
	}
}

func FuzzID(f *testing.F) {
	id := newID(randomSecret(), []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:99"), netip.MustParseAddrPort("[fe80::1]:7")}, true)
	f.Add(id[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var id ID
		copy(id[:], b)
		addrs, err := id.addrs()
		if err != nil {
			return
		}
		again := newID([secretBytes]byte(id.secret()), addrs, id.late())
		got, err := again.addrs()
		if err != nil || !cmp.Equal(got, addrs, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })) || again.late() != id.late() {
			t.Errorf("%v, encoded again, is %v, %v", addrs, got, err)
		}
	})
}

func FuzzDeath(f *testing.F) {
	f.Add(encodeDeath(&transport.PeerError{Rank: 1, By: 2, What: "gone", Wait: time.Second}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeDeath(b, 8)
		if err == nil && len(b) < 500 && !bytes.Equal(encodeDeath(e), b) {
			t.Errorf("%x is read as %+v", b, e)
		}
	})
}

func FuzzPeers(f *testing.F) {
	two := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:99"), netip.MustParseAddrPort("[fe80::1]:7")}
	f.Add(appendAddrs(appendAddrs([]byte{0, 0, 0, 7}, two), two))
	f.Add(append(appendAddrs([]byte{0, 0, 0, 7}, two), appendAddrs([]byte{0, 0, 0, 1}, two[:1])...))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodePeers(b)
		if err != nil {
			return
		}
		var again []byte
		for _, p := range list {
			again = appendAddrs(binary.BigEndian.AppendUint32(again, uint32(p.rank)), p.addrs)
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x is read as %v", b, list)
		}
	})
}

// FuzzHandle: whatever a neighbour sends, it ends its link at worst.
func FuzzHandle(f *testing.F) {
	for k := frameHere; k <= frameAbort; k++ {
		f.Add(byte(k), []byte{})
		f.Add(byte(k), append([]byte{0, 0, 0, 1, gathers, 1}, 0, 0, 0, 5, 0, 0, 0, 1, 'x'))
		f.Add(byte(k), encodeDeath(&transport.PeerError{Rank: 1, By: 2, What: "gone"}))
	}
	f.Fuzz(func(t *testing.T, k byte, p []byte) {
		n := newNet(1, 6, ID{}, Options{}.withDefaults())
		for _, r := range neighbours(1, 6) {
			c, _ := net.Pipe()
			n.links = append(n.links, newLink(n, n.o.Silence, r, c))
		}
		n.up, n.down = n.links[0], n.links[2:]
		for _, l := range n.links {
			n.handle(l, meet.Kind(k), bytes.Clone(p))
		}
	})
}
