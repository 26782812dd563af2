package socket

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// infoVersion is the first word of an Info. It changes with the wire format.
const infoVersion = "tcp/1"

// maxAddrs bounds what an Info may list.
const maxAddrs = 64

// An info is what an endpoint tells its peers: three words of text.
type info struct {
	maxMessage int
	addrs      []netip.AddrPort // zones are local and left out
}

func (i info) marshal() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d ", infoVersion, i.maxMessage)
	for n, a := range i.addrs {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(netip.AddrPortFrom(a.Addr().WithZone(""), a.Port()).String())
	}
	return []byte(b.String())
}

func parseInfo(data []byte) (info, error) {
	if len(data) > 64*maxAddrs {
		return info{}, fmt.Errorf("%d bytes are too many", len(data))
	}
	words := strings.Split(string(data), " ")
	if len(words) != 3 || words[0] != infoVersion {
		return info{}, fmt.Errorf("%.40q is not of version %s; all ranks must run the same build", data, infoVersion)
	}
	n, err := strconv.ParseUint(words[1], 10, 31)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != words[1] {
		return info{}, fmt.Errorf("message size %q is not a positive number", words[1])
	}
	i := info{maxMessage: int(n)}
	for _, s := range strings.Split(words[2], ",") {
		a, err := netip.ParseAddrPort(s)
		if err != nil {
			return info{}, err
		}
		if a.Addr().Zone() != "" || a.String() != s || a.Port() == 0 {
			return info{}, fmt.Errorf("address %q is not in its plain form", s)
		}
		i.addrs = append(i.addrs, a)
	}
	if len(i.addrs) > maxAddrs {
		return info{}, errors.New("too many addresses")
	}
	return i, nil
}

// A pair is a way from this host to another one.
type pair struct {
	local  netip.Addr
	remote netip.AddrPort
}

// pairs lists the ways between local addresses and a peer's: those that share
// a family, the i-th address with the i-th one first, so that streams dealt
// round robin use each interface.
func pairs(local []netip.Addr, remote []netip.AddrPort) []pair {
	type ranked struct {
		pair
		shift, i int
	}
	var list []ranked
	for i, l := range local {
		for j, r := range remote {
			if !compatible(l, r.Addr()) {
				continue
			}
			if r.Addr().IsLinkLocalUnicast() {
				// The zone is this host's name of the link.
				r = netip.AddrPortFrom(r.Addr().WithZone(l.Zone()), r.Port())
			}
			n := max(len(local), len(remote))
			list = append(list, ranked{pair{l, r}, ((j-i)%n + n) % n, i})
		}
	}
	slices.SortStableFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.shift, b.shift), cmp.Compare(a.i, b.i))
	})
	out := make([]pair, len(list))
	for i := range list {
		out[i] = list[i].pair
	}
	return out
}

func compatible(a, b netip.Addr) bool {
	return a.Unmap().Is4() == b.Unmap().Is4() &&
		a.IsLinkLocalUnicast() == b.IsLinkLocalUnicast() &&
		a.IsLoopback() == b.IsLoopback()
}
