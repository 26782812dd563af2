package netenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// families are the name prefixes of the variables that are always shown if the user has set them.
var families = []string{"NCCL_", "UCX_", "FI_", "GLOO_", "SHARP_", "RDMAV_"}

// keep moves the user's settings from Set and Unset to Kept, and reports those that contradict the
// node.
func (m *maker) keep() {
	for _, s := range m.opt.Env {
		if s.Value == "" || slices.ContainsFunc(m.Kept, func(k Kept) bool { return k.Name == s.Name }) {
			continue
		}
		k := Kept{Setting: s}
		at := slices.IndexFunc(m.Set, func(v Variable) bool { return v.Name == s.Name })
		if at >= 0 {
			k.Found, k.Reason = m.Set[at].Value, m.Set[at].Reason
			m.Set = slices.Delete(m.Set, at, at+1)
		}
		left := slices.IndexFunc(m.Unset, func(u Unset) bool { return u.Name == s.Name })
		if left >= 0 {
			k.Reason = m.Unset[left].Reason
			m.Unset = slices.Delete(m.Unset, left, left+1)
		}
		shown := slices.ContainsFunc(families, func(p string) bool { return strings.HasPrefix(s.Name, p) })
		if at < 0 && left < 0 && !shown && checks[s.Name] == nil {
			continue
		}
		k.Against = m.against(s, k.Found)
		if s.Unread != "" {
			k.Against = "has no effect: " + s.Unread
		}
		m.Kept = append(m.Kept, k)
		if k.Against != "" && s.Unread == "" { // that is one of the problems
			m.warn(fmt.Sprintf("%s=%s (%s) %s", s.Name, s.Value, s.From, k.Against), remedyOf(k))
		}
	}
	slices.SortFunc(m.Kept, func(a, b Kept) int { return strings.Compare(a.Name, b.Name) })
}

func remedyOf(k Kept) string {
	if k.Found != "" {
		return "unset it, or set it to " + k.Found
	}
	return "unset it"
}

// against returns how a value contradicts the node: by the variable's rule, or because it differs
// from the value found.
func (m *maker) against(s Setting, found string) string {
	if check := checks[s.Name]; check != nil {
		return check(m, s.Value)
	}
	if found != "" && !strings.EqualFold(s.Value, found) {
		return "is not what was found: " + found
	}
	return ""
}

// checks are the rules for variables with several equivalent values, and for variables that this
// package does not set but that would do harm.
var checks = map[string]func(m *maker, value string) string{
	"NCCL_SOCKET_IFNAME":          (*maker).checkSocketIfname,
	"GLOO_SOCKET_IFNAME":          (*maker).checkInclude,
	"OMPI_MCA_btl_tcp_if_include": (*maker).checkInclude,
	"OMPI_MCA_oob_tcp_if_include": (*maker).checkInclude,
	"PRTE_MCA_oob_tcp_if_include": (*maker).checkInclude,
	"OMPI_MCA_btl_tcp_if_exclude": (*maker).checkExclude,
	"OMPI_MCA_oob_tcp_if_exclude": (*maker).checkExclude,
	"PRTE_MCA_oob_tcp_if_exclude": (*maker).checkExclude,
	"UCX_NET_DEVICES":             (*maker).checkUCX,
	"NCCL_IB_HCA":                 (*maker).checkHCA,
	"NCCL_IB_GID_INDEX":           (*maker).checkGID,
	"NCCL_SOCKET_FAMILY":          (*maker).checkFamily,
	"NCCL_NET_PLUGIN":             (*maker).checkPlugin,
	"NCCL_NET":                    (*maker).checkNet,
	"NCCL_TOPO_FILE":              never,
	"NCCL_GDRCOPY_ENABLE":         (*maker).checkGDRCopy,
	"NCCL_MNNVL_ENABLE":           (*maker).checkMNNVL,
	"NCCL_COLLNET_ENABLE":         (*maker).checkCollNet,
	"NCCL_IB_DISABLE":             when("1", overRDMA, "turns off the RDMA devices that are here"),
	"NCCL_NET_GDR_LEVEL":          (*maker).checkGDRLevel,
	"NCCL_P2P_DISABLE":            when("1", severalGPUs, "keeps GPUs from each other's memory: it is for finding faults"),
	"NCCL_SHM_DISABLE":            when("1", severalGPUs, "keeps ranks of a host from shared memory: it is for finding faults"),
	"NCCL_PROTO":                  when("", overEFA, "undoes what the OFI plugin sets for the instance"),
	"NCCL_BUFFSIZE":               when("", overEFA, "undoes what the OFI plugin sets for the instance"),
	"RDMAV_FORK_SAFE":             when("", overEFA, "must not be set with EFA: kernel and libfabric see to forks"),
}

func never(*maker, string) string { return "" }

func overRDMA(m *maker) bool    { return m.Data.Kind != Sockets }
func overEFA(m *maker) bool     { return m.Data.Kind == EFA }
func severalGPUs(m *maker) bool { return len(m.n.GPUs) > 1 }

// when is a rule for one value, or for any value if it is "".
func when(value string, applies func(*maker) bool, text string) func(*maker, string) string {
	return func(m *maker, got string) string {
		if applies(m) && (value == "" || got == value) {
			return text
		}
		return ""
	}
}

func (m *maker) checkSocketIfname(value string) string {
	l, c := parseList(value), m.Control.Interface
	if c != "" && !l.admits(c, 0) {
		return fmt.Sprintf("leaves out %s: %s", c, m.Control.Why)
	}
	var local []string
	for _, i := range m.n.Interfaces {
		is, _ := m.n.hostOnly(i)
		// NCCL leaves loopback and docker's interfaces out by itself only where nothing is set.
		own := strings.HasPrefix(i.Name, "lo") || strings.HasPrefix(i.Name, "docker")
		if is && (!l.not || own) && l.admits(i.Name, 0) {
			local = append(local, i.Name)
		}
	}
	switch {
	case len(local) > 0 && l.not:
		return "takes in " + join(local) + ": an exclusion replaces NCCL's own (^lo,docker), and other hosts are not behind that"
	case len(local) > 0:
		return "takes in " + join(local) + ", which other hosts are not behind"
	}
	return ""
}

func (m *maker) checkInclude(value string) string {
	if c := m.Control.Interface; c != "" && !m.n.mpiNames(value, c) {
		return fmt.Sprintf("leaves out %s: %s", c, m.Control.Why)
	}
	return ""
}

func (m *maker) checkExclude(value string) string {
	if c := m.Control.Interface; c != "" && m.n.mpiNames(value, c) {
		return fmt.Sprintf("leaves out %s: %s", c, m.Control.Why)
	}
	return ""
}

// checkUCX only requires that the devices exist: MPI may use both networks.
func (m *maker) checkUCX(value string) string {
	var absent []string
	for item := range strings.SplitSeq(value, ",") {
		name, _, _ := strings.Cut(item, ":")
		_, ok := m.n.iface(name)
		if !ok && name != "all" && !slices.ContainsFunc(m.n.Ports, func(p Port) bool { return p.Device == name }) && !strings.ContainsAny(name, "*?[^") {
			absent = append(absent, name)
		}
	}
	if len(absent) > 0 {
		return "names " + join(absent) + ", which this node has not"
	}
	return ""
}

func (m *maker) checkHCA(value string) string {
	if m.Data.Kind == EFA {
		return "" // nothing reads it
	}
	l := parseList(value)
	var missing, extra []string
	why := ""
	for _, c := range m.Data.Ports {
		switch admitted := l.admits(c.Device, c.Port); {
		case c.Used && !admitted:
			missing = append(missing, m.label(c))
		case !c.Used && admitted && !m.opt.NoIB:
			extra, why = append(extra, m.label(c)), c.Why
		}
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, "leaves out "+join(missing))
	}
	if len(extra) > 0 {
		parts = append(parts, fmt.Sprintf("takes in %s (%s)", join(extra), why))
	}
	return strings.Join(parts, " and ")
}

func (m *maker) checkGID(value string) string {
	index, err := strconv.Atoi(value)
	if m.Data.Kind != RoCE || err != nil || index < 0 {
		return ""
	}
	for i, c := range m.Data.Ports {
		if !c.Used {
			continue
		}
		switch g, ok := m.n.Ports[i].at(index); {
		case !ok:
			return fmt.Sprintf("is not an address of %s", m.label(c))
		case g.Type != roce2:
			return fmt.Sprintf("is %s of %s, which no router passes on", g.Type, m.label(c))
		case g.Addr.IsLinkLocalUnicast():
			return fmt.Sprintf("is a link-local address of %s (%v)", m.label(c), g.Addr)
		}
	}
	return ""
}

func (m *maker) checkFamily(value string) string {
	want := map[string]string{IPv4: "AF_INET", IPv6: "AF_INET6"}[m.Control.Family]
	if want == "" || strings.EqualFold(value, want) {
		return ""
	}
	i, _ := m.n.iface(m.Control.Interface)
	if m.Control.Family == IPv4 && m.n.hasIPv6(i) {
		return "" // both work
	}
	return fmt.Sprintf("is not the family by which %s leads to the other hosts (%s)", m.Control.Interface, m.Control.Family)
}

// hasIPv6 reports whether an interface has a global IPv6 address, or a route to such a network.
func (n *Node) hasIPv6(i Interface) bool {
	i4 := Interface{Name: i.Name}
	for _, a := range i.Addrs {
		if a.Addr().Is6() {
			i4.Addrs = append(i4.Addrs, a)
		}
	}
	six := Node{}
	for _, r := range n.Routes {
		if r.To.Addr().Is6() {
			six.Routes = append(six.Routes, r)
		}
	}
	return six.family(i4) == IPv6
}

func (m *maker) checkPlugin(value string) string {
	_, ofi := m.plugin(PluginOFI)
	sharp, ok := m.plugin(PluginSHARP)
	_, spectrumX := m.plugin(PluginSpectrumX)
	switch {
	case value == "spcx" && !spectrumX:
		return "names libnccl-net-spcx.so, HPC-X's plugin for Spectrum-X, and it is not here: NCCL goes without"
	case value == "spcx" && m.Data.Kind != RoCE:
		return "is for Spectrum-X, and there is " + string(m.Data.Kind)
	case m.Data.Kind == EFA && value == "none":
		return "keeps the OFI plugin out, and NCCL goes over TCP"
	case m.Data.Kind == EFA && !ofi:
		return ""
	case value == "none" && m.opt.SHARP && ok:
		return "keeps the SHARP plugin out: " + sharp.Path
	case value == "sharp" && ok && sharp.Name != value:
		return "names libnccl-net-sharp.so, and the SHARP plugin here is " + sharp.Path
	}
	return ""
}

func (m *maker) checkNet(value string) string {
	switch {
	case strings.EqualFold(value, "Socket") && m.Data.Kind != Sockets:
		return "sends data over TCP, and there is " + string(m.Data.Kind)
	case strings.EqualFold(value, "IB") && m.Data.Kind != InfiniBand && m.Data.Kind != RoCE:
		return "makes NCCL fail: there is no InfiniBand and no RoCE that can be used (" + m.Data.Why + ")"
	}
	return ""
}

func (m *maker) checkGDRCopy(value string) string {
	k := m.n.Modules
	if value == "1" && (k.Known && !k.GDRDrv || k.DevKnown && !k.GDRDev) {
		return "cannot work: gdrdrv or /dev/gdrdrv is not here"
	}
	return ""
}

func (m *maker) checkMNNVL(value string) string {
	switch {
	case value == "1" && !m.n.NVLinkHosts && len(m.n.GPUs) > 0:
		return "makes NCCL fail: this platform's NVLinks end at the host"
	case value == "1" && m.n.IMEX.Known && len(m.n.IMEX.Channels) == 0:
		return "makes NCCL fail: there is no IMEX channel"
	case value == "0" && m.n.NVLinkHosts && len(m.n.IMEX.Channels) > 0:
		return "sends data over the network that NVLink could carry"
	}
	return ""
}

func (m *maker) checkCollNet(value string) string {
	_, sharp := m.plugin(PluginSHARP)
	if value == "1" && (!sharp || m.Data.Kind != InfiniBand) {
		return "has no effect: there is no SHARP plugin, or no InfiniBand to use it on"
	}
	if plugin, ok := m.env("NCCL_NET_PLUGIN"); value == "1" && ok && plugin.Value == "none" {
		return "has no effect with NCCL_NET_PLUGIN=none"
	}
	return ""
}

func (m *maker) checkGDRLevel(value string) string {
	if overRDMA(m) && (strings.EqualFold(value, "LOC") || value == "0") {
		return "turns GPUDirect RDMA off: data goes through the processor's memory"
	}
	return ""
}
