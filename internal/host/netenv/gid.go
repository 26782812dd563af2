package netenv

import (
	"fmt"
	"net/netip"
	"slices"
)

// An Address describes the RoCE address that all used ports have in common.
type Address struct {
	Family string `json:"family"`
	// Index is the index in the ports' GID tables; -1: it differs between ports.
	Index int `json:"index"`
}

const roce2 = "RoCE v2"

// addresses chooses each port's RoCE v2 address: IPv4, or IPv6 if more ports have that. Ports
// without an address of the chosen family are removed.
func (s *sorter) addresses() *Address {
	if !s.any(func(i int) bool { return s.ports[i].Layer == "Ethernet" }) {
		return nil
	}
	counts := map[string]int{}
	for _, i := range s.left() {
		for _, family := range []string{IPv4, IPv6} {
			if _, ok := s.ports[i].gid(family); ok {
				counts[family]++
			}
		}
	}
	family := IPv4
	if counts[IPv6] > counts[IPv4] {
		family = IPv6
	}
	if counts[family] == 0 {
		s.m.warn("no RoCE port has an address that can be routed (RoCE v2 with IPv4, or with a global IPv6 address)",
			"give the ports' interfaces IP addresses; in a container: use the host's network, or attach theirs (macvlan, SR-IOV)")
		return nil
	}
	a := &Address{Family: family, Index: -1}
	for n, i := range s.left() {
		g, ok := s.ports[i].gid(family)
		if !ok {
			s.out[i].Used, s.out[i].Why = false, fmt.Sprintf("it has no RoCE v2 address of %s", family)
			s.m.warn(fmt.Sprintf("%s port %d has no RoCE v2 address of %s, as others have", s.ports[i].Device, s.ports[i].Number, family), "give its interface an address")
			continue
		}
		s.out[i].GID = g.Index
		if n == 0 {
			a.Index = g.Index
		}
	}
	for _, i := range s.left() {
		if s.out[i].GID != a.Index {
			a.Index = -1
		}
	}
	return a
}

// gid returns a port's RoCE v2 address of a family: the first one of the port's own interface, else
// of a VLAN. Link-local addresses do not count, as they reach no other subnet.
func (p Port) gid(family string) (GID, bool) {
	fits := func(g GID) bool {
		a := g.Addr
		return g.Type == roce2 && a.IsValid() && a.Is4() == (family == IPv4) && !a.IsLinkLocalUnicast()
	}
	own := slices.IndexFunc(p.GIDs, func(g GID) bool { return fits(g) && (g.Netdev == "" || slices.Contains(p.Netdevs, g.Netdev)) })
	if own < 0 {
		own = slices.IndexFunc(p.GIDs, fits)
	}
	if own < 0 {
		return GID{}, false
	}
	return p.GIDs[own], true
}

// at returns the entry with an index.
func (p Port) at(index int) (GID, bool) {
	i := slices.IndexFunc(p.GIDs, func(g GID) bool { return g.Index == index })
	if i < 0 {
		return GID{}, false
	}
	return p.GIDs[i], true
}

// example returns the address of the first used port at an index, for messages.
func (m *maker) example(index int) netip.Addr {
	for i, c := range m.Data.Ports {
		if g, ok := m.n.Ports[i].at(index); c.Used && ok {
			return g.Addr
		}
	}
	return netip.Addr{}
}
