package netenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An objection is what the node has against a value; the zero objection is none.
type objection struct {
	text  string
	grade Grade
}

func stops(format string, a ...any) objection   { return objection{fmt.Sprintf(format, a...), Stops} }
func harms(format string, a ...any) objection   { return objection{fmt.Sprintf(format, a...), Harms} }
func differs(format string, a ...any) objection { return objection{fmt.Sprintf(format, a...), Differs} }

// against returns how a value contradicts the node: by the variable's rule, or because it differs
// from the value found.
func (m *maker) against(s Setting, found string) objection {
	if check := checks[s.Name]; check != nil {
		return check(m, s.Value)
	}
	if found != "" && !strings.EqualFold(s.Value, found) {
		return differs("is not what was found: %s", found)
	}
	return objection{}
}

// checks are the rules for variables with several equivalent values, and for variables that this
// package does not set but that would do harm.
var checks = map[string]func(m *maker, value string) objection{
	"NCCL_SOCKET_IFNAME":          (*maker).checkSocketIfname,
	"GLOO_SOCKET_IFNAME":          (*maker).checkInclude,
	"OMPI_MCA_btl_tcp_if_include": (*maker).checkInclude,
	"OMPI_MCA_oob_tcp_if_include": (*maker).checkInclude,
	"PRTE_MCA_oob_tcp_if_include": (*maker).checkInclude,
	"OMPI_MCA_btl_tcp_if_exclude": (*maker).checkMessagesExclude,
	"OMPI_MCA_oob_tcp_if_exclude": (*maker).checkExclude,
	"PRTE_MCA_oob_tcp_if_exclude": (*maker).checkExclude,
	"UCX_NET_DEVICES":             (*maker).checkUCX,
	"UCX_TLS":                     (*maker).checkUCXTransports,
	"NCCL_IB_HCA":                 (*maker).checkHCA,
	"NCCL_IB_GID_INDEX":           (*maker).checkGID,
	"NCCL_SOCKET_FAMILY":          (*maker).checkFamily,
	"NCCL_NET_PLUGIN":             (*maker).checkPlugin,
	"NCCL_NET":                    (*maker).checkNet,
	"NCCL_TOPO_FILE":              never,
	"NCCL_GDRCOPY_ENABLE":         (*maker).checkGDRCopy,
	"NCCL_MNNVL_ENABLE":           (*maker).checkMNNVL,
	"NCCL_COLLNET_ENABLE":         (*maker).checkCollNet,
	"NCCL_IB_DISABLE":             (*maker).checkIBDisable,
	"NCCL_NET_GDR_LEVEL":          (*maker).checkGDRLevel,
	"NCCL_P2P_DISABLE":            (*maker).checkP2P,
	"NCCL_SHM_DISABLE":            (*maker).checkSHM,
	"NCCL_PROTO":                  overEFA("undoes what the OFI plugin sets for the instance"),
	"NCCL_BUFFSIZE":               overEFA("undoes what the OFI plugin sets for the instance"),
	"RDMAV_FORK_SAFE":             overEFA("must not be set with EFA: kernel and libfabric see to forks"),
}

// Judges reports whether there is a rule for a variable's value on a node.
func Judges(name string) bool { return checks[name] != nil }

func never(*maker, string) objection { return objection{} }

// overEFA is a rule for any value where EFA carries the data.
func overEFA(text string) func(*maker, string) objection {
	return func(m *maker, _ string) objection {
		if m.Data.Kind == EFA {
			return differs("%s", text)
		}
		return objection{}
	}
}

// verbsCarry reports whether NCCL's own transport for InfiniBand and RoCE carries the data.
func (m *maker) verbsCarry() bool { return m.Data.Kind == InfiniBand || m.Data.Kind == RoCE }

// nvlinked reports whether several GPUs are here that have NVLink.
func (m *maker) nvlinked() bool {
	return len(m.n.GPUs) > 1 && !slices.ContainsFunc(m.n.GPUs, func(g GPU) bool { return !g.NVLink })
}

func (m *maker) checkP2P(value string) objection {
	switch {
	case value != "1" || len(m.n.GPUs) < 2:
		return objection{}
	case m.nvlinked():
		return harms("keeps GPUs from each other's memory, so that NVLink is not used: it is for finding faults")
	}
	return differs("keeps GPUs from each other's memory: it is for finding faults, and for machines whose PCIe does not carry it")
}

func (m *maker) checkSHM(value string) objection {
	if value != "1" || len(m.n.GPUs) < 2 {
		return objection{}
	}
	const text = "keeps ranks of a host from shared memory: it is for finding faults"
	if p2p, ok := m.env("NCCL_P2P_DISABLE"); ok && p2p.Value == "1" {
		return harms("%s, and with NCCL_P2P_DISABLE=1 they use the network among themselves", text)
	}
	if m.nvlinked() {
		return differs("%s; by NVLink they reach each other all the same", text)
	}
	return harms("%s, and those without peer access use the network among themselves", text)
}

func (m *maker) checkIBDisable(value string) objection {
	if value != "1" || !m.verbsCarry() {
		return objection{}
	}
	return harms("turns off the RDMA devices that are here")
}

func (m *maker) checkSocketIfname(value string) objection {
	l, c := parseList(value), m.Control.Interface
	var admitted, local []string
	for _, i := range m.n.Interfaces {
		if !l.admits(i.Name, 0) {
			continue
		}
		admitted = append(admitted, i.Name)
		is, _ := m.n.hostOnly(i)
		// NCCL leaves loopback and docker's interfaces out by itself only where nothing is set.
		own := strings.HasPrefix(i.Name, "lo") || strings.HasPrefix(i.Name, "docker")
		if is && (!l.not || own) {
			local = append(local, i.Name)
		}
	}
	switch {
	case len(m.n.Interfaces) == 0: // a container that hides them
		return objection{}
	case len(admitted) == 0:
		return stops("matches no interface of this node (%s): NCCL ends with \"no socket interface found\"", some(m.n.interfaceNames()))
	case c != "" && !slices.Contains(admitted, c) && len(local) == len(admitted):
		return m.hostOnlyValue("NCCL_SOCKET_IFNAME", "leaves out %s: %s; other hosts are not behind %s", c, m.Control.Why, join(local))
	case c != "" && !slices.Contains(admitted, c):
		return differs("leaves out %s: %s", c, m.Control.Why)
	case len(local) > 0 && l.not:
		const text = "takes in %s: an exclusion replaces NCCL's own (^lo,docker), and other hosts are not behind that"
		if slices.Contains(local, "lo") || m.Data.Kind == Sockets {
			return harms(text, join(local))
		}
		return differs(text, join(local))
	case len(local) > 0:
		return harms("takes in %s, which other hosts are not behind", join(local))
	}
	return objection{}
}

// hostOnlyValue is an objection to a value that suffices for jobs of one host: the environment may
// be that of such a job, and a file is for all jobs.
func (m *maker) hostOnlyValue(name, format string, a ...any) objection {
	if s, _ := m.env(name); s.From == Environment && len(m.n.Peers) == 0 {
		return differs(format, a...)
	}
	return harms(format, a...)
}

// interfaceNames returns the names of all interfaces.
func (n *Node) interfaceNames() (names []string) {
	for _, i := range n.Interfaces {
		names = append(names, i.Name)
	}
	return names
}

func (m *maker) checkInclude(value string) objection {
	c := m.Control.Interface
	switch {
	case c == "" || m.n.mpiNames(value, c):
		return objection{}
	case slices.ContainsFunc(m.n.Interfaces, func(i Interface) bool { return m.n.mpiNames(value, i.Name) }):
		return differs("leaves out %s: %s", c, m.Control.Why)
	}
	return harms("leaves out %s, and names no interface of this node", c)
}

func (m *maker) checkMessagesExclude(value string) objection {
	if !m.n.mpiNames(value, "lo") && !strings.Contains(value, "127.0.0.") {
		return harms("replaces Open MPI's own list (127.0.0.1/8), so that the loopback takes part, which other hosts are not behind")
	}
	return m.checkExclude(value)
}

func (m *maker) checkExclude(value string) objection {
	if c := m.Control.Interface; c != "" && m.n.mpiNames(value, c) {
		return differs("leaves out %s: %s", c, m.Control.Why)
	}
	return objection{}
}

// checkUCX only requires that the devices exist: MPI may use both networks.
func (m *maker) checkUCX(value string) objection {
	var absent []string
	n := 0
	for item := range strings.SplitSeq(value, ",") {
		n++
		name, _, _ := strings.Cut(item, ":")
		_, ok := m.n.iface(name)
		if !ok && name != "all" && !slices.ContainsFunc(m.n.Ports, func(p Port) bool { return p.Device == name }) && !strings.ContainsAny(name, "*?[^") {
			absent = append(absent, name)
		}
	}
	switch {
	case len(absent) == 0:
		return objection{}
	case len(absent) == n:
		return harms("names %s, which this node has not, and nothing else", join(absent))
	}
	return differs("names %s, which this node has not", join(absent))
}

// ucxVerbs are UCX's transports over RDMA devices, and ucxHere those that do not leave the host.
var (
	ucxVerbs = []string{"ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x", "ud_verbs", "ud_mlx5", "dc", "dc_x", "dc_mlx5"}
	ucxHere  = []string{"self", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem", "cuda", "cuda_copy", "cuda_ipc", "gdr_copy", "rocm", "rocm_copy", "rocm_ipc"}
)

func (m *maker) checkUCXTransports(value string) objection {
	if strings.HasPrefix(value, "^") {
		return objection{}
	}
	verbs := 0
	for name := range strings.SplitSeq(value, ",") {
		switch name, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(name), `\`), ":"); {
		case slices.Contains(ucxVerbs, name):
			verbs++
		case !slices.Contains(ucxHere, name): // tcp, all, or what is not known here
			return objection{}
		}
	}
	if verbs > 0 && len(m.n.Ports) == 0 {
		return harms("has RDMA alone, and there is no RDMA device here")
	}
	return objection{}
}

func (m *maker) checkHCA(value string) objection {
	if m.Data.Kind == EFA {
		return objection{} // nothing reads it
	}
	l := parseList(value)
	var missing, extra []string
	why, used := "", 0
	for _, c := range m.Data.Ports {
		switch admitted := l.admits(c.Device, c.Port); {
		case c.Used && !admitted:
			missing = append(missing, m.label(c))
		case c.Used:
			used++
		case admitted && !m.opt.NoIB:
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
	text := strings.Join(parts, " and ")
	switch net, _ := m.env("NCCL_NET"); {
	case text == "":
		return objection{}
	case used+len(extra) == 0 && strings.EqualFold(net.Value, "IB"):
		return stops("matches no adapter of this node, and with NCCL_NET=IB NCCL ends: it %s", text)
	case used+len(extra) == 0:
		return harms("matches no adapter of this node, so that data goes over TCP: it %s", text)
	case len(missing) == 0 && !l.exact && !m.meansOther(l, extra):
		return differs("%s", text) // a prefix of all, such as mlx5; NCCL takes the nearest of them
	}
	return harms("%s", text)
}

// meansOther reports whether a list names a device whose name begins another one's, as mlx5_1 does
// mlx5_10's, or names one of the extra devices itself.
func (m *maker) meansOther(l nameFilter, extra []string) bool {
	if l.not {
		return false
	}
	return slices.ContainsFunc(l.items, func(item string) bool {
		name, _, _ := strings.Cut(item, ":")
		return slices.ContainsFunc(m.n.Ports, func(p Port) bool { return p.Device == name }) &&
			slices.ContainsFunc(extra, func(e string) bool { return strings.HasPrefix(e, name) })
	})
}

func (m *maker) checkGID(value string) objection {
	index, err := strconv.Atoi(value)
	if m.Data.Kind != RoCE || err != nil || index < 0 {
		return objection{}
	}
	for i, c := range m.Data.Ports {
		if !c.Used {
			continue
		}
		switch g, ok := m.n.Ports[i].at(index); {
		case !ok:
			return harms("is not an address of %s", m.label(c))
		case g.Type != roce2:
			return differs("is %s of %s, which no router passes on", g.Type, m.label(c))
		case g.Addr.IsLinkLocalUnicast():
			return differs("is a link-local address of %s (%v)", m.label(c), g.Addr)
		}
	}
	return objection{}
}

func (m *maker) checkFamily(value string) objection {
	want := map[string]string{IPv4: "AF_INET", IPv6: "AF_INET6"}[m.Control.Family]
	if want == "" || strings.EqualFold(value, want) || !strings.EqualFold(value, "AF_INET") && !strings.EqualFold(value, "AF_INET6") {
		return objection{} // NCCL takes no other word
	}
	i, _ := m.n.iface(m.Control.Interface)
	if m.Control.Family == IPv4 && m.n.hasIPv6(i) {
		return objection{} // both work
	}
	return harms("is not the family by which %s leads to the other hosts (%s)", m.Control.Interface, m.Control.Family)
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

func (m *maker) checkPlugin(value string) objection {
	_, ofi := m.plugin(PluginOFI)
	sharp, ok := m.plugin(PluginSHARP)
	_, spectrumX := m.plugin(PluginSpectrumX)
	switch {
	case value == "spcx" && !spectrumX:
		return harms("names libnccl-net-spcx.so, HPC-X's plugin for Spectrum-X, and it is not here: NCCL goes without")
	case value == "spcx" && m.Data.Kind != RoCE:
		return harms("is for Spectrum-X, and there is %s", m.Data.Kind)
	case m.Data.Kind == EFA && value == "none":
		return harms("keeps the OFI plugin out, and NCCL goes over TCP")
	case m.Data.Kind == EFA && !ofi:
		return objection{}
	case value == "none" && m.opt.SHARP && ok:
		return differs("keeps the SHARP plugin out: %s", sharp.Path)
	case value == "sharp" && ok && sharp.Name != value:
		return harms("names libnccl-net-sharp.so, and the SHARP plugin here is %s", sharp.Path)
	}
	return objection{}
}

func (m *maker) checkNet(value string) objection {
	switch {
	case strings.EqualFold(value, "Socket") && m.Data.Kind != Sockets:
		return harms("sends data over TCP, and there is %s", m.Data.Kind)
	case strings.EqualFold(value, "IB") && m.Data.Kind == Sockets && m.mayOpen():
		return harms("makes NCCL use what does not suit it: there is no InfiniBand and no RoCE that can be used (%s)", m.Data.Why)
	case strings.EqualFold(value, "IB") && !m.verbsCarry():
		return stops("makes NCCL fail: there is no InfiniBand and no RoCE that can be used (%s)", m.Data.Why)
	}
	return objection{}
}

// mayOpen reports whether NCCL's own transport would find a port to use.
func (m *maker) mayOpen() bool {
	return (!m.n.Modules.DevKnown || m.n.Modules.Verbs) && slices.ContainsFunc(m.n.Ports, func(p Port) bool {
		return p.Layer != "Unspecified" && p.Vendor != VendorAmazon && (p.State == "" || p.State == "ACTIVE")
	})
}

func (m *maker) checkGDRCopy(value string) objection {
	k := m.n.Modules
	if value == "1" && (k.Known && !k.GDRDrv || k.DevKnown && !k.GDRDev) {
		return differs("cannot work: gdrdrv or /dev/gdrdrv is not here")
	}
	return objection{}
}

func (m *maker) checkMNNVL(value string) objection {
	switch {
	case value == "1" && !m.n.NVLinkHosts && len(m.n.GPUs) > 0 && m.n.Platform == "":
		return differs("makes NCCL fail unless NVLinks join hosts here: the platform is not known")
	case value == "1" && !m.n.NVLinkHosts && len(m.n.GPUs) > 0:
		return stops("makes NCCL fail: this platform's NVLinks end at the host")
	case value == "1" && m.n.IMEX.Known && len(m.n.IMEX.Channels) == 0:
		return stops("makes NCCL fail: there is no IMEX channel")
	case value == "0" && m.n.NVLinkHosts && len(m.n.IMEX.Channels) > 0:
		return differs("sends data over the network that NVLink could carry")
	}
	return objection{}
}

func (m *maker) checkCollNet(value string) objection {
	_, sharp := m.plugin(PluginSHARP)
	if value == "1" && (!sharp || m.Data.Kind != InfiniBand) {
		return differs("has no effect: there is no SHARP plugin, or no InfiniBand to use it on")
	}
	if plugin, ok := m.env("NCCL_NET_PLUGIN"); value == "1" && ok && plugin.Value == "none" {
		return differs("has no effect with NCCL_NET_PLUGIN=none")
	}
	return objection{}
}

func (m *maker) checkGDRLevel(value string) objection {
	if m.Data.Kind != Sockets && (strings.EqualFold(value, "LOC") || value == "0") {
		return harms("turns GPUDirect RDMA off: data goes through the processor's memory")
	}
	return objection{}
}
