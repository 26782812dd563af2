package netenv

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A list is a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA: name prefixes, or exact names after =. A
// leading ^ means all others.
type list struct {
	not, exact bool
	items      []string
}

func parseList(value string) list {
	var l list
	value, l.not = strings.CutPrefix(value, "^")
	value, l.exact = strings.CutPrefix(value, "=")
	l.items = strings.Split(value, ",")
	return l
}

// admits reports whether the list admits a port of a device. Network interfaces have port 0.
func (l list) admits(name string, port int) bool {
	return l.not != slices.ContainsFunc(l.items, func(item string) bool {
		if device, number, ok := strings.Cut(item, ":"); ok && port > 0 {
			if number != fmt.Sprint(port) {
				return false
			}
			item = device
		}
		if l.exact {
			return item == name
		}
		return strings.HasPrefix(name, item)
	})
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
