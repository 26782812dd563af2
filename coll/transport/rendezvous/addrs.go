package rendezvous

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Addrs are the addresses on which a point listens. They have no zones: zones are local
// to a host.
type Addrs []netip.AddrPort

// maxAddrs is the maximum number of addresses.
const maxAddrs = 64

// String returns the addresses as one word.
func (a Addrs) String() string {
	var words []string
	for _, a := range a {
		words = append(words, netip.AddrPortFrom(a.Addr().WithZone(""), a.Port()).String())
	}
	return strings.Join(words, ",")
}

// parseAddrs parses the output of String.
func parseAddrs(text string) (addrs Addrs, err error) {
	for s := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, err
		}
		if a.Addr().Zone() != "" || a.String() != s || a.Port() == 0 {
			return nil, fmt.Errorf("address %q is not in its plain form", s)
		}
		if addrs = append(addrs, a); len(addrs) > maxAddrs {
			return nil, errors.New("too many addresses")
		}
	}
	return addrs, nil
}

// A way is a pair of addresses.
type way struct {
	from netip.Addr
	to   netip.AddrPort
}

// ways lists the pairs of a local and a remote address that may connect. Pairs of equal
// index come first, so that streams distributed over the list use each interface.
func ways(local []netip.Addr, remote Addrs) (list []way) {
	n := max(len(local), len(remote))
	for shift := range n {
		for i, from := range local {
			j := (i + shift) % n
			if j >= len(remote) || !compatible(from, remote[j].Addr()) {
				continue
			}
			to := remote[j]
			if to.Addr().IsLinkLocalUnicast() { // the zone is this host's name for the link
				to = netip.AddrPortFrom(to.Addr().WithZone(from.Zone()), to.Port())
			}
			list = append(list, way{from, to})
		}
	}
	return list
}

func compatible(a, b netip.Addr) bool {
	return a.Unmap().Is4() == b.Unmap().Is4() && a.IsLinkLocalUnicast() == b.IsLinkLocalUnicast() && a.IsLoopback() == b.IsLoopback()
}
