package meet

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// An Interface is a network interface that is up, with one of its addresses. A link-local IPv6
// address has its zone.
type Interface struct {
	Name string
	Addr netip.Addr
	// Leads says that the interface is a device, or has a default route: probably it leads to other
	// hosts.
	Leads bool
}

// Interfaces returns the addresses that these values of NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY
// admit, best first: interfaces in the order of the names, then of the system, IPv4 before IPv6,
// link-local addresses last. Without NCCL_SOCKET_IFNAME interfaces that lead to other hosts come
// before all others, and networks of this host's containers last.
func Interfaces(ifname, family string) ([]Interface, error) {
	all, err := AllInterfaces()
	if err != nil {
		return nil, err
	}
	return selectInterfaces(all, ifname, family)
}

// AllInterfaces returns all addresses of this host on interfaces that are up.
func AllInterfaces() ([]Interface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var out []Interface
	defaults := defaultRoutes()
	for _, i := range list {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it was just removed
		}
		_, err = os.Stat("/sys/class/net/" + i.Name + "/device")
		leads := err == nil || defaults[i.Name]
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			addr := prefix.Addr().Unmap()
			if addr.IsLinkLocalUnicast() && addr.Is6() {
				addr = addr.WithZone(i.Name)
			}
			out = append(out, Interface{i.Name, addr, leads})
		}
	}
	return out, nil
}

// defaultRoutes returns the interfaces with a default route, of IPv4 or IPv6.
func defaultRoutes() map[string]bool {
	found := map[string]bool{}
	for file, f := range map[string]func(words []string) (name string, ok bool){
		"/proc/net/route": func(w []string) (string, bool) { return w[0], len(w) > 7 && w[1] == "00000000" && w[7] == "00000000" },
		"/proc/net/ipv6_route": func(w []string) (string, bool) {
			return w[len(w)-1], len(w) == 10 && w[1] == "00" && strings.Trim(w[0], "0") == "" && w[len(w)-1] != "lo"
		},
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // without this family, or without /proc
		}
		for line := range strings.Lines(string(b)) {
			if words := strings.Fields(line); len(words) > 0 {
				if name, ok := f(words); ok {
					found[name] = true
				}
			}
		}
	}
	return found
}

// ofContainers are the beginnings of names of networks that lead to this host's containers and
// virtual machines only, as their programs give them.
var ofContainers = []string{"docker", "virbr", "br-", "veth", "cni", "cbr", "podman", "lxcbr", "lxdbr", "cali", "flannel", "cilium", "lxc", "weave", "vmnet", "vboxnet", "nerdctl"}

// distance orders interfaces by how probable it is that they lead to other hosts.
func (i Interface) distance() int {
	switch {
	case i.Leads:
		return 0
	case slices.ContainsFunc(ofContainers, func(name string) bool { return strings.HasPrefix(i.Name, name) }):
		return 2
	}
	return 1
}

// ErrNoInterface is the error where no interface has a name and an address that are allowed.
var ErrNoInterface = errors.New("no interface fits")

// A namePattern is a parsed NCCL_SOCKET_IFNAME.
type namePattern struct {
	names          []string
	exact, exclude bool
}

func parseNamePattern(s string) namePattern {
	var p namePattern
	s = strings.TrimSpace(s)
	s, p.exclude = strings.CutPrefix(s, "^")
	s, p.exact = strings.CutPrefix(s, "=")
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			p.names = append(p.names, name)
		}
	}
	return p
}

// order returns the index of the first name that matches, or -1.
func (p namePattern) order(iface string) int {
	return slices.IndexFunc(p.names, func(name string) bool {
		if p.exact {
			return iface == name
		}
		return strings.HasPrefix(iface, name)
	})
}

// selectInterfaces is Interfaces for a given list.
func selectInterfaces(all []Interface, ifname, family string) ([]Interface, error) {
	of, err := Family(family)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(i Interface) bool { return !of(i.Addr) })
	p := parseNamePattern(ifname)
	if len(p.names) == 0 {
		return defaultInterfaces(all)
	}
	out := slices.DeleteFunc(slices.Clone(all), func(i Interface) bool { return (p.order(i.Name) >= 0) == p.exclude })
	if len(out) == 0 {
		return nil, fmt.Errorf("%w NCCL_SOCKET_IFNAME=%q with family %q; there are %s", ErrNoInterface, ifname, family, Names(all))
	}
	slices.SortStableFunc(out, func(a, b Interface) int {
		if d := p.order(a.Name) - p.order(b.Name); d != 0 && !p.exclude {
			return d
		}
		return CompareAddrs(a.Addr, b.Addr)
	})
	return out, nil
}

// defaultInterfaces returns the interfaces that are neither loopback nor a bridge of containers or
// virtual machines; else the bridges; else loopback. Interfaces with link-local addresses only,
// such as the host's ends of containers' networks, are left out if others are there.
func defaultInterfaces(all []Interface) ([]Interface, error) {
	routed := map[string]bool{}
	for _, i := range all {
		routed[i.Name] = routed[i.Name] || !i.Addr.IsLinkLocalUnicast()
	}
	class := func(i Interface) int {
		switch {
		case i.Addr.IsLoopback() || i.Name == "lo":
			return 3
		case strings.HasPrefix(i.Name, "docker"), strings.HasPrefix(i.Name, "virbr"):
			return 2
		case !routed[i.Name]:
			return 1
		}
		return 0
	}
	for c := range 4 {
		out := slices.DeleteFunc(slices.Clone(all), func(i Interface) bool { return class(i) != c })
		if len(out) > 0 {
			slices.SortStableFunc(out, func(a, b Interface) int {
				return cmp.Or(a.distance()-b.distance(), CompareAddrs(a.Addr, b.Addr))
			})
			return out, nil
		}
	}
	return nil, fmt.Errorf("there is no network interface with an address, not even loopback; there are %s", Names(all))
}

// CompareAddrs orders addresses: IPv4, global IPv6, IPv4 link-local, IPv6
// link-local.
func CompareAddrs(a, b netip.Addr) int {
	rank := func(a netip.Addr) (n int) {
		if a.Is6() {
			n = 1
		}
		if a.IsLinkLocalUnicast() {
			n += 2
		}
		return n
	}
	return rank(a) - rank(b)
}

// Family returns a filter for the addresses that NCCL_SOCKET_FAMILY admits.
func Family(family string) (func(netip.Addr) bool, error) {
	switch family {
	case "":
		return netip.Addr.IsValid, nil
	case "AF_INET":
		return netip.Addr.Is4, nil
	case "AF_INET6":
		return netip.Addr.Is6, nil
	}
	return nil, fmt.Errorf("NCCL_SOCKET_FAMILY=%q; it can be AF_INET or AF_INET6", family)
}

// Names formats a list of interfaces for messages.
func Names(list []Interface) string {
	if len(list) == 0 {
		return "none"
	}
	var out []string
	for _, i := range list {
		out = append(out, fmt.Sprintf("%s (%s)", i.Name, i.Addr))
	}
	return strings.Join(out, ", ")
}

// Zones returns a in the forms that can be dialled from here: a link-local IPv6 address once for
// every interface that NCCL_SOCKET_IFNAME admits.
func Zones(a netip.AddrPort, ifname string) []netip.AddrPort {
	if !a.Addr().Is6() || !a.Addr().IsLinkLocalUnicast() || a.Addr().Zone() != "" {
		return []netip.AddrPort{a}
	}
	list, err := Interfaces(ifname, "AF_INET6")
	if err != nil {
		return nil
	}
	var out []netip.AddrPort
	for _, i := range list {
		if i.Addr.Zone() != "" {
			if z := netip.AddrPortFrom(a.Addr().WithZone(i.Name), a.Port()); !slices.Contains(out, z) {
				out = append(out, z)
			}
		}
	}
	return out
}

// AddrPort returns the address of a TCP connection's end, or of a listener. For other types it is
// not valid.
func AddrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
