package netenv

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A nameFilter is a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA: name prefixes, or exact names after =. A
// leading ^ means all others.
type nameFilter struct {
	not, exact bool
	items      []string
}

func parseList(value string) nameFilter {
	var l nameFilter
	value, l.not = strings.CutPrefix(value, "^")
	value, l.exact = strings.CutPrefix(value, "=")
	for item := range strings.SplitSeq(value, ",") {
		if name, _, _ := strings.Cut(item, ":"); name != "" { // NCCL leaves empty names out
			l.items = append(l.items, item)
		}
	}
	return l
}

// admits reports whether the list admits a port of a device. Network interfaces have port 0. Behind
// the port of an item may be its rail and plane. A list without names has all.
func (l nameFilter) admits(name string, port int) bool {
	return l.not != (l.items == nil || slices.ContainsFunc(l.items, func(item string) bool {
		parts := strings.Split(item, ":")
		if port > 0 && len(parts) > 1 && parts[1] != "" && parts[1] != fmt.Sprint(port) {
			return false
		}
		if l.exact {
			return parts[0] == name
		}
		return strings.HasPrefix(name, parts[0])
	}))
}

// mpiNames reports whether Open MPI's list of interfaces and networks includes an interface.
func (n *Node) mpiNames(value, name string) bool {
	i, _ := n.iface(name)
	return slices.ContainsFunc(strings.Split(value, ","), func(item string) bool {
		p, err := netip.ParsePrefix(strings.TrimSpace(item))
		if err != nil {
			return strings.TrimSpace(item) == name
		}
		if len(i.Addrs) == 0 { // not known: use the routes to its networks
			return slices.ContainsFunc(n.Routes, func(r Route) bool {
				return r.Dev == name && r.To.Bits() > 0 && p.Overlaps(r.To)
			})
		}
		return slices.ContainsFunc(i.Addrs, func(a netip.Prefix) bool { return p.Contains(a.Addr()) })
	})
}
