package netenv

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The address families.
const (
	IPv4 = "IPv4"
	IPv6 = "IPv6"
)

// Control is the interface over which the other hosts are reached by TCP.
type Control struct {
	Interface string `json:"interface,omitempty"` // "": none could be chosen
	Family    string `json:"family,omitempty"`    // IPv4, IPv6
	Why       string `json:"why"`
}

// chooseControl chooses the interface: by the routes to the peers, else by the default route, else
// the only candidate.
func (m *maker) chooseControl() Control {
	if len(m.n.Peers) > 0 {
		if c, ok := m.byPeers(); ok {
			return c
		}
	}
	if c, ok := m.byDefault(); ok {
		return c
	}
	return m.byElimination()
}

// byPeers looks up the route to each peer. It uses IPv4 if IPv4 routes lead to all of them, else
// IPv6.
func (m *maker) byPeers() (Control, bool) {
	var why string
	for _, family := range []string{IPv4, IPv6} {
		w := m.ways(family)
		switch {
		case len(w.devs) == 0 && len(w.missing) == 0: // all are this host
			return Control{}, false
		case len(w.missing) > 0:
			why = fmt.Sprintf("no %s route to %s", family, some(w.missing))
			continue
		case len(w.devs) > 1:
			m.warn(fmt.Sprintf("the peers are reached over %s (%s): no single interface leads to all of them", join(w.devs), family),
				"name the peers by addresses of one network, or set NCCL_SOCKET_IFNAME yourself")
			return Control{Why: "the peers are on several interfaces"}, true
		}
		i, _ := m.n.iface(w.devs[0])
		if local, what := m.n.hostOnly(i); local {
			m.warn(fmt.Sprintf("the peers are reached over %s, %s: other hosts are not behind it", i.Name, what), "name the peers by their hosts' addresses")
			return Control{Why: "the peers are reached over " + i.Name + " only"}, true
		}
		return Control{Interface: w.devs[0], Family: family, Why: fmt.Sprintf("the route to %s leads over it", some(w.names))}, true
	}
	for _, p := range m.n.Peers {
		if p.Err != "" {
			why = p.Name + ": " + p.Err
			break
		}
	}
	m.warn("not all peers can be reached: "+why, "correct the names, or the hosts' addresses and routes")
	return Control{}, false
}

// ways are the results of routing to the peers: interfaces, routed names, and names without a
// route.
type ways struct{ devs, names, missing []string }

func (m *maker) ways(family string) (w ways) {
	for _, p := range m.n.Peers {
		dev, own := "", false
		for _, a := range p.Addrs {
			a = a.Unmap()
			switch {
			case a.IsLoopback() && !m.n.isHost(p.Name): // a name service that resolves it wrongly
			case m.n.owns(a):
				own = true
			case a.Is4() == (family == IPv4) && dev == "":
				dev = m.n.lookup(a)
			}
		}
		switch {
		case own: // this host itself: its route is not in the table
		case dev == "":
			w.missing = append(w.missing, p.Name)
		default:
			w.names = append(w.names, p.Name)
			if !slices.Contains(w.devs, dev) {
				w.devs = append(w.devs, dev)
			}
		}
	}
	return w
}

// isHost reports whether a name is this host's.
func (n *Node) isHost(name string) bool {
	short := func(s string) string { before, _, _ := strings.Cut(s, "."); return before }
	return name == "localhost" || n.Host == "" || short(name) == short(n.Host)
}

// owns reports whether an address is one of the node's.
func (n *Node) owns(a netip.Addr) bool {
	return a.IsLoopback() || slices.ContainsFunc(n.Interfaces, func(i Interface) bool {
		return slices.ContainsFunc(i.Addrs, func(p netip.Prefix) bool { return p.Addr() == a })
	})
}

// lookup returns the interface for an address: the longest matching prefix, and among equal
// prefixes the lowest metric.
func (n *Node) lookup(a netip.Addr) string {
	best := Route{}
	for _, r := range n.Routes {
		if !r.To.Contains(a) {
			continue
		}
		if best.Dev == "" || r.To.Bits() > best.To.Bits() || r.To.Bits() == best.To.Bits() && r.Metric < best.Metric {
			best = r
		}
	}
	return best.Dev
}

// byDefault chooses the interface of the default route, IPv4 before IPv6.
func (m *maker) byDefault() (Control, bool) {
	for _, family := range []string{IPv4, IPv6} {
		best := Route{}
		for _, r := range m.n.Routes {
			i, _ := m.n.iface(r.Dev)
			if local, _ := m.n.hostOnly(i); local || r.To.Bits() != 0 || r.To.Addr().Is4() != (family == IPv4) {
				continue
			}
			if best.Dev == "" || r.Metric < best.Metric {
				best = r
			}
		}
		if best.Dev != "" {
			return Control{Interface: best.Dev, Family: family, Why: "it has the " + family + " default route" + m.only(family)}, true
		}
	}
	return Control{}, false
}

// only notes that IPv6 was chosen because IPv4 has no default route.
func (m *maker) only(family string) string {
	if family == IPv6 {
		return ", and IPv4 has none"
	}
	return ""
}

// byElimination chooses the only interface that can lead to other hosts. Interfaces of RDMA devices
// count only if there are no others.
func (m *maker) byElimination() Control {
	var plain, rdma []Control
	for _, i := range m.n.Interfaces {
		family := m.n.family(i)
		if local, _ := m.n.hostOnly(i); local || family == "" || i.State == "down" {
			continue
		}
		c := Control{Interface: i.Name, Family: family, Why: "no other interface has an address that leads to other hosts"}
		if slices.ContainsFunc(m.n.Ports, func(p Port) bool { return slices.Contains(p.Netdevs, i.Name) }) {
			rdma = append(rdma, c)
		} else {
			plain = append(plain, c)
		}
	}
	if len(plain) == 0 {
		plain = rdma
	}
	if len(plain) == 1 {
		return plain[0]
	}
	var names []string
	for _, c := range plain {
		names = append(names, c.Interface)
	}
	what := "no interface leads to other hosts"
	if len(names) > 0 {
		what = fmt.Sprintf("there is no default route, and any of %s may lead to the other hosts", join(names))
	}
	m.warn(what, "name other hosts: --peers or --hostfile")
	return Control{Why: what}
}

// family returns the family of an interface's addresses and of the routes to its own networks (the
// addresses may not be known). IPv4 has priority.
func (n *Node) family(i Interface) string {
	var all []netip.Addr
	for _, p := range i.Addrs {
		all = append(all, p.Addr())
	}
	for _, r := range n.Routes {
		if r.Dev == i.Name && !r.To.Addr().IsMulticast() {
			all = append(all, r.To.Addr())
		}
	}
	out := ""
	for _, a := range all {
		switch {
		case a.IsLinkLocalUnicast() || a.IsLoopback():
		case a.Is4():
			return IPv4
		default:
			out = IPv6
		}
	}
	return out
}

// localNames are name prefixes of interfaces that lead to containers and virtual machines of this
// host: Docker, libvirt, CNI, Podman, LXC, and the networks of Kubernetes. Bridges with other names
// (br-3f2c9d1e5a77) are recognised by their kind; br-ex of Open vSwitch, which has the host's
// address, has no kind.
var localNames = []string{"docker", "virbr", "vnet", "cni", "podman", "lxcbr", "lxdbr", "lxc", "flannel", "cali", "cilium", "kube-", "nodelocaldns", "tunl", "dummy"}

// hostOnly reports whether an interface leads to no other host, and what it is.
func (n *Node) hostOnly(i Interface) (bool, string) {
	switch {
	case i.Kind == "loopback" || i.Name == "lo":
		return true, "the loopback"
	case i.Name == "":
		return false, ""
	case i.Kind == "vxlan":
		return true, "an overlay of containers"
	case i.Kind == "bridge" && !n.reachesWire(i):
		return true, "a bridge of this host's containers or virtual machines"
	case slices.ContainsFunc(localNames, func(p string) bool { return strings.HasPrefix(i.Name, p) }):
		return true, "an interface of this host's containers or virtual machines"
	}
	return false, ""
}

// reachesWire reports whether one of an interface's lower interfaces is not virtual.
func (n *Node) reachesWire(i Interface) bool {
	return slices.ContainsFunc(n.below(i.Name), func(name string) bool {
		l, ok := n.iface(name)
		return ok && name != i.Name && !l.Virtual
	})
}

// below returns an interface and all lower interfaces: the bond of a VLAN, the cards of the bond.
// It includes cards that only name their master.
func (n *Node) below(name string) []string {
	out := []string{name}
	for k := 0; k < len(out); k++ {
		i, _ := n.iface(out[k])
		lower := slices.Clone(i.Lower)
		for _, j := range n.Interfaces {
			if j.Master == out[k] {
				lower = append(lower, j.Name)
			}
		}
		for _, l := range lower {
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// some lists the first few names.
func some(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:2], ", "), len(names)-2)
	}
	return join(names)
}

// controlPlane sets the variables that name the interface.
func (m *maker) controlPlane() {
	c := m.Control
	if c.Interface == "" {
		m.leave("NCCL_SOCKET_IFNAME", "no interface could be chosen: %s", c.Why)
		return
	}
	if !expressible(c.Interface) {
		m.warn(fmt.Sprintf("the interface %q leads to the other hosts, and lists of interfaces cannot name it", c.Interface), "rename it: letters, digits, points and dashes")
		m.leave("NCCL_SOCKET_IFNAME", "the name %q cannot stand in a list", c.Interface)
		return
	}
	m.set("NCCL_SOCKET_IFNAME", "="+c.Interface, "control plane over %s: %s; = makes it this name and no other that begins so", c.Interface, c.Why)
	m.set("GLOO_SOCKET_IFNAME", c.Interface, "the same for Gloo, which frameworks use beside NCCL")
	m.include("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude", "the same for Open MPI's messages over TCP")
	m.include("OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_oob_tcp_if_exclude", "the same for mpirun's own connections, which it makes before any rank starts")
	m.include("PRTE_MCA_oob_tcp_if_include", "PRTE_MCA_oob_tcp_if_exclude", "as the one before it, for Open MPI 5, whose mpirun is PRRTE")
	m.set("UCX_NET_DEVICES", c.Interface, "MPI only starts the job: TCP is enough, and UCX on RDMA devices is one more thing that can fail; ranks of a host keep to shared memory%s", m.ucxData())
	if c.Family == IPv6 {
		m.set("NCCL_SOCKET_FAMILY", "AF_INET6", "hosts reach each other by IPv6 here: %s", c.Why)
		m.set("OMPI_MCA_btl_tcp_disable_family", "4", "the same for Open MPI's messages; its build must have IPv6 (--enable-ipv6)")
		m.set("OMPI_MCA_oob_tcp_disable_ipv4_family", "1", "the same for mpirun's own connections")
		m.set("PRTE_MCA_oob_tcp_disable_ipv4_family", "1", "the same for Open MPI 5")
	}
}

// include sets a list of interfaces unless the user has set the list of excluded ones: Open MPI
// accepts only one of the two.
func (m *maker) include(name, exclude, reason string) {
	if s, ok := m.env(exclude); ok {
		m.leave(name, "%s=%s is set, and Open MPI refuses both at once", s.Name, s.Value)
		return
	}
	m.set(name, m.Control.Interface, "%s", reason)
}

// ucxData returns what to set for programs that send their data over MPI.
func (m *maker) ucxData() string {
	used := m.Data.used()
	if m.Data.Kind != InfiniBand && m.Data.Kind != RoCE || len(used) == 0 {
		return ""
	}
	var list []string
	for _, c := range used {
		list = append(list, fmt.Sprintf("%s:%d", c.Device, c.Port))
	}
	return ". For programs whose data goes by MPI: UCX_NET_DEVICES=" + strings.Join(list, ",")
}

// expressible reports whether a name can be part of NCCL's and Open MPI's lists.
func expressible(name string) bool {
	return !strings.ContainsAny(name, ",^=:/") && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f })
}
