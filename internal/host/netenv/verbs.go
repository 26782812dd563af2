package netenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxHCAs is the largest number of devices that NCCL opens.
const maxHCAs = 32

// verbs sets what NCCL's own transport for InfiniBand and RoCE needs.
func (m *maker) verbs() {
	used := m.Data.used()
	m.set("NCCL_IB_HCA", "="+m.hcaList(), "%s", m.hcaReason())
	if len(used) > maxHCAs {
		m.warn(fmt.Sprintf("%d ports, and NCCL opens %d", len(used), maxHCAs), "set NCCL_IB_HCA to those that are wanted")
	}
	m.sharp()
	if m.Data.Kind == RoCE {
		m.roce()
	} else {
		m.leave("NCCL_IB_GID_INDEX", "InfiniBand goes by LID within a subnet; NCCL finds the address between subnets")
	}
	m.leave("NCCL_IB_TC", "traffic class and NCCL_IB_SL name queues that only the network's operator knows: ask, and set them then")
	m.leave("NCCL_IB_TIMEOUT", "with NCCL_IB_RETRY_CNT, NCCL_IB_QPS_PER_CONNECTION and the sizes of buffers: NCCL's defaults hold until a measurement says otherwise")
	if m.n.Cloud == "azure" {
		m.leave("NCCL_IB_PCI_RELAXED_ORDERING", "Microsoft's images set 1; NCCL's default (2) does the same wherever libibverbs can")
	}
	m.set("OMPI_MCA_coll_hcoll_enable", "0", "HCOLL inside MPI opens the RDMA devices by itself, whatever UCX_NET_DEVICES says; start-up needs none of it")
}

// hcaList returns the list for NCCL_IB_HCA: devices by name, with the port number if only some of a
// device's ports are used.
func (m *maker) hcaList() string {
	var list []string
	for _, c := range m.Data.used() {
		item := c.Device
		if slices.ContainsFunc(m.Data.Ports, func(o Choice) bool { return o.Device == c.Device && !o.Used }) {
			item = fmt.Sprintf("%s:%d", c.Device, c.Port)
		}
		if !slices.Contains(list, item) {
			list = append(list, item)
		}
	}
	return strings.Join(list, ",")
}

func (m *maker) hcaReason() string {
	used := m.Data.used()
	text := fmt.Sprintf("data plane over %s, %s", m.Data.Kind, m.Data.Why)
	switch near, far := m.pathsUsed(); {
	case len(m.n.GPUs) == 0:
		text += "; there are no GPUs to be near to"
	case near > 0 && far == 0:
		text += ", each behind a PCI switch with a GPU"
	case slices.ContainsFunc(used, func(c Choice) bool { return len(c.GPUs) > 0 }):
		text += ", the nearest to the GPUs"
	}
	if left := m.leftOut(); left != "" {
		text += "; left out: " + left
	}
	return text + ". = makes it these names: without it mlx5_1 is mlx5_10, too"
}

// pathsUsed counts the used ports behind a PCI switch with a GPU, and the other used ports.
func (m *maker) pathsUsed() (near, far int) {
	for _, c := range m.Data.used() {
		if c.Path == "PIX" || c.Path == "PXB" {
			near++
		} else {
			far++
		}
	}
	return near, far
}

// leftOut lists the reasons for leaving ports out, each with its ports.
func (m *maker) leftOut() string {
	var reasons []string
	ports := map[string][]string{}
	for _, c := range m.Data.Ports {
		if c.Used {
			continue
		}
		if ports[c.Why] == nil {
			reasons = append(reasons, c.Why)
		}
		ports[c.Why] = append(ports[c.Why], m.label(c))
	}
	var out []string
	for _, r := range reasons {
		out = append(out, fmt.Sprintf("%s (%s)", join(ports[r]), r))
	}
	return strings.Join(out, ", ")
}

// label returns a port's device, with the port number if the device has several.
func (m *maker) label(c Choice) string {
	if slices.ContainsFunc(m.Data.Ports, func(o Choice) bool { return o.Device == c.Device && o.Port != c.Port }) {
		return fmt.Sprintf("%s:%d", c.Device, c.Port)
	}
	return c.Device
}

// sharp chooses between NCCL's own transport, which must not fall back to sockets, and the SHARP
// plugin.
func (m *maker) sharp() {
	p, found := m.plugin(PluginSHARP)
	unasked, loads := m.unasked()
	wanted := m.opt.SHARP
	if collnet, ok := m.env("NCCL_COLLNET_ENABLE"); ok && collnet.Value == "1" {
		wanted = true // the job wants it; NCCL_NET would keep the plugin out
	}
	if wanted && m.Data.Kind == InfiniBand && found {
		m.set("NCCL_COLLNET_ENABLE", "1", "reductions in the switches (--sharp): the plugin is %s. The fabric's aggregation manager must run and admit the job", p.Path)
		m.set("SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING", "1", "SHARP registers memory so that PCI may reorder its writes, as NCCL does by itself")
		if p.Name != "" {
			m.set("NCCL_NET_PLUGIN", p.Name, "the plugin's name; NCCL would not load it unasked")
		}
		if !p.Listed {
			m.notListed(p)
		}
		m.leave("NCCL_NET", "the plugin has a network of its own, whose name goes with its version")
		m.leave("NCCL_ALGO", "NCCL chooses between CollnetChain, CollnetDirect and the others by size")
		return
	}
	switch {
	case m.Data.Kind != InfiniBand:
		m.noSHARP()
	case m.opt.SHARP:
		m.warn("--sharp: there is no SHARP plugin for NCCL here (libnccl-net-sharp.so or libnccl-net.so of nccl-rdma-sharp-plugins)", "use an image that has HPC-X with the plugin, and add its directory to LD_LIBRARY_PATH")
	}
	if loads && unasked.Kind == PluginSHARP {
		m.set("NCCL_NET_PLUGIN", "none", "%s would be loaded unasked: it is the SHARP plugin, and without SHARP NCCL's own transport does the work", unasked.Path)
	}
	if loads && unasked.Kind != PluginSHARP {
		m.leave("NCCL_NET", "%s is loaded unasked and brings a network of its own", unasked.Path)
	} else {
		m.set("NCCL_NET", "IB", "a job that cannot open the RDMA devices fails at once, where NCCL would go over TCP without a word")
	}
	if m.Data.Kind == InfiniBand && !wanted {
		text := "no SHARP plugin is here"
		if found {
			text = p.Path + " is here: --sharp turns it on; reductions in the switches need the fabric's aggregation manager, too"
		}
		m.leave("NCCL_COLLNET_ENABLE", "%s", text)
	}
}

func (m *maker) notListed(p Plugin) {
	dir := p.Path[:strings.LastIndexByte(p.Path, '/')]
	m.warn(p.Path+" is where the loader does not look", "LD_LIBRARY_PATH="+dir+":$LD_LIBRARY_PATH")
}

// roce sets how GIDs are chosen.
func (m *maker) roce() {
	a := m.Data.GID
	if a == nil {
		m.leave("NCCL_IB_GID_INDEX", "no port has an address that can be routed")
		return
	}
	if a.Index >= 0 {
		m.set("NCCL_IB_GID_INDEX", strconv.Itoa(a.Index), "index %d is RoCE v2 with %s (%v) on every port that is used; the entries beside it are RoCE v1 or link-local, which no router passes on. NCCL from 2.21 on finds it by itself, older ones take 0", a.Index, a.Family, m.example(a.Index))
	} else {
		var list []string
		for _, c := range m.Data.used() {
			list = append(list, fmt.Sprintf("%s %d", m.label(c), c.GID))
		}
		m.leave("NCCL_IB_GID_INDEX", "RoCE v2 with %s is at another index on each port (%s), and the variable holds one for all: NCCL must be 2.21 or later, which finds them", a.Family, strings.Join(list, ", "))
	}
	switch {
	case a.Family == IPv6:
		m.set("NCCL_IB_ADDR_FAMILY", "AF_INET6", "the RoCE ports have IPv6 addresses only")
	case m.Control.Family == IPv6:
		m.set("NCCL_IB_ADDR_FAMILY", "AF_INET", "two families in one job: TCP goes by IPv6 (NCCL_SOCKET_FAMILY), RDMA by the ports' IPv4 addresses")
	}
	m.leave("NCCL_IB_ADAPTIVE_ROUTING", "off on RoCE unless the switches are set up for it (Spectrum-X): the network's operator knows")
}

// sockets is for nodes that send data over TCP.
func (m *maker) sockets() {
	if !m.opt.NoIB {
		m.leave("NCCL_IB_HCA", "%s: data goes over TCP, by the interface of the control plane", m.Data.Why)
		m.leave("NCCL_IB_DISABLE", "NCCL finds nothing to disable, and goes on to TCP by itself")
		if p, ok := m.unasked(); ok && len(m.n.Ports) == 0 {
			m.leave("NCCL_NET_PLUGIN", "%s finds no device of its own and hands on to NCCL", p.Path)
		}
		m.noSHARP()
		return
	}
	m.set("NCCL_NET", "Socket", "sockets were asked for (--no-ib): neither InfiniBand nor a plugin is tried")
	m.set("NCCL_IB_DISABLE", "1", "the same, for what else of NCCL looks for InfiniBand")
	if p, ok := m.unasked(); ok {
		m.set("NCCL_NET_PLUGIN", "none", "%s would be loaded unasked", p.Path)
	}
	m.leave("NCCL_IB_HCA", "sockets were asked for (--no-ib)")
	m.set("OMPI_MCA_coll_hcoll_enable", "0", "HCOLL inside MPI would open the RDMA devices by itself")
	m.noSHARP()
}

// noSHARP warns that --sharp does not work over this data plane.
func (m *maker) noSHARP() {
	if m.opt.SHARP {
		m.warn(fmt.Sprintf("--sharp: the data plane is %s, and SHARP is InfiniBand's", m.Data.Kind), "leave --sharp out")
	}
}
