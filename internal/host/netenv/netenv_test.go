package netenv

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func limit(v uint64) *uint64       { return &v }

// plain is a node with two GPUs, each below a switch with an InfiniBand card,
// and a third card for storage; eth0 has the default route.
func plain() *Node {
	port := func(device string, paths ...string) Port {
		return Port{Device: device, Number: 1, OnPCI: true, Vendor: "15b3", Model: "1021", Layer: "InfiniBand", State: "ACTIVE", Gbit: 400, Netdevs: []string{"ib" + device}, Paths: paths}
	}
	return &Node{
		Host:  "a",
		GPUs:  []GPU{{BusID: "0000:1b:00.0"}, {BusID: "0000:9d:00.0"}},
		Ports: []Port{port("mlx5_0", "PIX", "SYS"), port("mlx5_1", "SYS", "PIX"), port("mlx5_10", "NODE", "SYS")},
		Interfaces: []Interface{
			{Name: "lo", Kind: "loopback", Virtual: true, Addrs: []netip.Prefix{prefix("127.0.0.1/8")}},
			{Name: "eth0", State: "up", Addrs: []netip.Prefix{prefix("10.0.0.1/24")}},
			{Name: "docker0", Kind: "bridge", Virtual: true, State: "up", Addrs: []netip.Prefix{prefix("172.17.0.1/16")}},
		},
		Routes: []Route{
			{To: prefix("0.0.0.0/0"), Gateway: addr("10.0.0.254"), Dev: "eth0", Metric: 100},
			{To: prefix("10.0.0.0/24"), Dev: "eth0"}, {To: prefix("172.17.0.0/16"), Dev: "docker0"},
		},
		Modules: Modules{Known: true, PeerMem: true, DevKnown: true, Verbs: true},
		IMEX:    IMEX{Known: true},
		Limits:  Limits{Memlock: limit(Unlimited), SHM: limit(64 << 30), PIDs: limit(Unlimited)},
	}
}

// roce turns plain's ports into RoCE with the usual table of addresses.
func roce(n *Node) {
	for i := range n.Ports {
		p := &n.Ports[i]
		p.Layer = "Ethernet"
		local, four := addr("fe80::1"), addr(fmt.Sprintf("10.1.%d.1", i))
		p.GIDs = []GID{{0, local, "IB/RoCE v1", p.Netdevs[0]}, {1, local, "RoCE v2", p.Netdevs[0]}, {2, four, "IB/RoCE v1", p.Netdevs[0]}, {3, four, "RoCE v2", p.Netdevs[0]}}
	}
}

// efa turns plain's ports into EFA devices.
func efa(n *Node) {
	n.Cloud, n.Platform = "aws", "aws-p5"
	for i := range n.Ports {
		n.Ports[i].Vendor, n.Ports[i].Model, n.Ports[i].Layer = VendorAmazon, "efa2", "Unspecified"
	}
}

var (
	sharpPlugin     = Plugin{Path: "/opt/sharp/libnccl-net.so", Kind: PluginSHARP, Listed: true}
	namedSharp      = Plugin{Path: "/opt/hpcx/libnccl-net-sharp.so", Name: "sharp", Kind: PluginSHARP, Listed: true}
	spectrumXPlugin = Plugin{Path: "/opt/hpcx/libnccl-net-spcx.so", Name: "spcx", Kind: PluginSpectrumX, Listed: true}
	ofiPlugin       = Plugin{Path: "/opt/ofi/libnccl-net-ofi.so", Name: "ofi", Kind: PluginOFI, Listed: true}
)

// rules are changes of plain, what each makes be set, left alone and warned of,
// and what not. "NAME=VALUE" is a variable that is set, "NAME" one that is left
// alone, "!NAME" one that is neither, "warning: …" part of a warning.
var rules = []struct {
	name   string
	change func(n *Node, o *Options)
	want   string // by spaces; warnings have _ for a space
}{
	{"plain", func(*Node, *Options) {}, "NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0 OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 PRTE_MCA_oob_tcp_if_include=eth0 UCX_NET_DEVICES=eth0 NCCL_IB_HCA==mlx5_0,mlx5_1 NCCL_NET=IB OMPI_MCA_coll_hcoll_enable=0 NCCL_IB_TC NCCL_IB_GID_INDEX NCCL_COLLNET_ENABLE NCCL_NET_GDR_LEVEL !NCCL_SOCKET_FAMILY !NCCL_MNNVL_ENABLE !NCCL_TOPO_FILE !FI_PROVIDER !NCCL_GDRCOPY_ENABLE !NCCL_NET_PLUGIN !NCCL_IB_DISABLE !warning"},

	{"devices without names", func(n *Node, _ *Options) {
		for i := range n.Ports {
			n.Ports[i].Device = ""
		}
	}, "NCCL_IB_HCA !NCCL_NET !NCCL_NET_PLUGIN warning:does_not_name_its_RDMA_devices_(3_ports)"},
	{"RoCE devices without names", func(n *Node, _ *Options) {
		roce(n)
		for i := range n.Ports {
			n.Ports[i].Device = ""
		}
	}, "NCCL_IB_HCA !NCCL_NET !NCCL_IB_GID_INDEX warning:does_not_name"},
	{"one device without a name", func(n *Node, _ *Options) { n.Ports[1].Device = "" }, "NCCL_IB_HCA==mlx5_0,mlx5_10 NCCL_NET=IB warning:does_not_name_its_RDMA_devices_(1_port)"},

	// The control plane.
	{"lowest metric", func(n *Node, _ *Options) {
		n.Interfaces = append(n.Interfaces, Interface{Name: "eth1", State: "up"})
		n.Routes = append(n.Routes, Route{To: prefix("0.0.0.0/0"), Dev: "eth1", Metric: 50})
	}, "NCCL_SOCKET_IFNAME==eth1"},
	{"IPv4 before IPv6", func(n *Node, _ *Options) {
		n.Routes = append(n.Routes, Route{To: prefix("::/0"), Dev: "eth1"})
	}, "NCCL_SOCKET_IFNAME==eth0 !NCCL_SOCKET_FAMILY"},
	{"IPv6 only", func(n *Node, _ *Options) {
		n.Routes = []Route{{To: prefix("::/0"), Gateway: addr("fd00::1"), Dev: "eth0"}, {To: prefix("fd00::/64"), Dev: "eth0"}}
	}, "NCCL_SOCKET_IFNAME==eth0 NCCL_SOCKET_FAMILY=AF_INET6 OMPI_MCA_btl_tcp_disable_family=4 OMPI_MCA_oob_tcp_disable_ipv4_family=1 PRTE_MCA_oob_tcp_disable_ipv4_family=1 !NCCL_IB_ADDR_FAMILY"},
	{"default route over docker0", func(n *Node, _ *Options) { n.Routes[0].Dev = "docker0" }, "NCCL_SOCKET_IFNAME==eth0 !warning"},
	{"default route over a bridge with a card", func(n *Node, _ *Options) {
		n.Routes[0].Dev = "br0"
		n.Interfaces = append(n.Interfaces, Interface{Name: "br0", Kind: "bridge", Virtual: true, Lower: []string{"eth0", "vnet3"}}, Interface{Name: "vnet3", Virtual: true, Master: "br0"})
	}, "NCCL_SOCKET_IFNAME==br0"},
	{"default route over a bridge without", func(n *Node, _ *Options) {
		n.Routes[0].Dev = "br0"
		n.Interfaces = append(n.Interfaces, Interface{Name: "br0", Kind: "bridge", Virtual: true, Lower: []string{"vnet3"}}, Interface{Name: "vnet3", Virtual: true, Master: "br0"})
	}, "NCCL_SOCKET_IFNAME==eth0"},
	{"a container's own veth", func(n *Node, _ *Options) {
		n.Interfaces[1] = Interface{Name: "veth1", Virtual: true, State: "up"}
		n.Routes = []Route{{To: prefix("10.0.0.0/24"), Dev: "veth1"}}
	}, "NCCL_SOCKET_IFNAME==veth1"},
	{"Open vSwitch", func(n *Node, _ *Options) {
		n.Routes[0].Dev = "br-ex"
		n.Interfaces = append(n.Interfaces, Interface{Name: "br-ex", Virtual: true})
	}, "NCCL_SOCKET_IFNAME==br-ex"},
	{"docker0 where /sys/class/net is hidden", func(n *Node, _ *Options) {
		n.Routes[0].Dev = "docker0"
		n.Interfaces[2].Kind, n.Interfaces[2].Virtual = "", false
	}, "NCCL_SOCKET_IFNAME==eth0"},
	{"an overlay", func(n *Node, _ *Options) {
		n.Routes[0].Dev = "vxlan.calico"
		n.Interfaces = append(n.Interfaces, Interface{Name: "vxlan.calico", Kind: "vxlan", Virtual: true})
	}, "NCCL_SOCKET_IFNAME==eth0"},
	{"no default route, one interface", func(n *Node, _ *Options) { n.Routes = n.Routes[1:] }, "NCCL_SOCKET_IFNAME==eth0 !warning"},
	{"no default route, two interfaces", func(n *Node, _ *Options) {
		n.Interfaces = append(n.Interfaces, Interface{Name: "eth1", State: "up"})
		n.Routes = append(n.Routes[1:], Route{To: prefix("10.9.0.0/24"), Dev: "eth1"})
	}, "NCCL_SOCKET_IFNAME !GLOO_SOCKET_IFNAME warning:any_of_eth0_and_eth1"},
	{"no default route, the other one is down", func(n *Node, _ *Options) {
		n.Interfaces = append(n.Interfaces, Interface{Name: "eth1", State: "down"})
		n.Routes = append(n.Routes[1:], Route{To: prefix("10.9.0.0/24"), Dev: "eth1"})
	}, "NCCL_SOCKET_IFNAME==eth0 !warning"},
	{"no default route, IPoIB does not count beside Ethernet", func(n *Node, _ *Options) {
		n.Interfaces = append(n.Interfaces, Interface{Name: "ibmlx5_0", State: "up"})
		n.Routes = append(n.Routes[1:], Route{To: prefix("10.9.0.0/24"), Dev: "ibmlx5_0"})
	}, "NCCL_SOCKET_IFNAME==eth0 !warning"},
	{"no way out", func(n *Node, _ *Options) { n.Routes, n.Interfaces = nil, n.Interfaces[:1] }, "NCCL_SOCKET_IFNAME warning:no_interface_leads"},
	{"peers on another interface", func(n *Node, _ *Options) {
		n.Interfaces = append(n.Interfaces, Interface{Name: "eth1"})
		n.Routes = append(n.Routes, Route{To: prefix("10.9.0.0/24"), Dev: "eth1"})
		n.Peers = []Peer{{Name: "b", Addrs: []netip.Addr{addr("10.9.0.2")}}, {Name: "a", Addrs: []netip.Addr{addr("10.0.0.1")}}}
	}, "NCCL_SOCKET_IFNAME==eth1 !warning"},
	{"peers by IPv6", func(n *Node, _ *Options) {
		n.Routes = append(n.Routes, Route{To: prefix("fd00::/64"), Dev: "eth1"})
		n.Peers = []Peer{{Name: "b", Addrs: []netip.Addr{addr("fd00::2")}}}
	}, "NCCL_SOCKET_IFNAME==eth1 NCCL_SOCKET_FAMILY=AF_INET6"},
	{"peers by both", func(n *Node, _ *Options) {
		n.Routes = append(n.Routes, Route{To: prefix("fd00::/64"), Dev: "eth1"})
		n.Peers = []Peer{{Name: "b", Addrs: []netip.Addr{addr("fd00::2"), addr("10.0.0.2")}}}
	}, "NCCL_SOCKET_IFNAME==eth0 !NCCL_SOCKET_FAMILY"},
	{"peers on two interfaces", func(n *Node, _ *Options) {
		n.Routes = append(n.Routes, Route{To: prefix("10.9.0.0/24"), Dev: "eth1"})
		n.Peers = []Peer{{Name: "b", Addrs: []netip.Addr{addr("10.9.0.2")}}, {Name: "c", Addrs: []netip.Addr{addr("10.0.0.3")}}}
	}, "NCCL_SOCKET_IFNAME warning:no_single_interface"},
	{"peers behind docker0", func(n *Node, _ *Options) { n.Peers = []Peer{{Name: "b", Addrs: []netip.Addr{addr("172.17.0.9")}}} }, "NCCL_SOCKET_IFNAME warning:other_hosts_are_not_behind_it"},
	{"a peer without addresses", func(n *Node, _ *Options) { n.Peers = []Peer{{Name: "b", Err: "no such host"}} }, "NCCL_SOCKET_IFNAME==eth0 warning:no_such_host"},
	{"a peer that is said to be the loopback", func(n *Node, _ *Options) { n.Peers = []Peer{{Name: "b", Addrs: []netip.Addr{addr("127.0.1.1")}}} }, "NCCL_SOCKET_IFNAME==eth0 warning:not_all_peers"},
	{"only this host", func(n *Node, _ *Options) {
		n.Peers = []Peer{{Name: "a.cluster", Addrs: []netip.Addr{addr("127.0.1.1")}}}
	}, "NCCL_SOCKET_IFNAME==eth0 !warning"},
	{"a name that lists cannot hold", func(n *Node, _ *Options) { n.Routes[0].Dev = "eth,0" }, "NCCL_SOCKET_IFNAME !GLOO_SOCKET_IFNAME warning:cannot_name_it"},
	{"Open MPI's exclusion", func(_ *Node, o *Options) {
		o.Env = []Setting{{Name: "OMPI_MCA_btl_tcp_if_exclude", Value: "lo,docker0", From: "environment"}}
	}, "OMPI_MCA_btl_tcp_if_include OMPI_MCA_oob_tcp_if_include=eth0 !warning"},

	// Which ports.
	{"a port of the control plane", func(n *Node, _ *Options) { n.Ports[1].Netdevs = []string{"eth0"}; n.Ports = n.Ports[:2] }, "NCCL_IB_HCA==mlx5_0"},
	{"below a bond of the control plane", func(n *Node, _ *Options) {
		n.Ports[1].Netdevs, n.Routes[0].Dev = []string{"ens1"}, "bond0.5"
		n.Interfaces = append(n.Interfaces, Interface{Name: "bond0.5", Kind: "vlan", Lower: []string{"bond0"}}, Interface{Name: "bond0", Kind: "bond"}, Interface{Name: "ens1", Master: "bond0"})
		n.Ports = n.Ports[:2]
	}, "NCCL_IB_HCA==mlx5_0"},
	{"the only port has the control plane, too", func(n *Node, _ *Options) { n.Ports = n.Ports[:1]; n.Ports[0].Netdevs = []string{"eth0"} }, "NCCL_IB_HCA==mlx5_0"},
	{"places not known", func(n *Node, _ *Options) {
		for i := range n.Ports {
			n.Ports[i].Paths = nil
		}
	}, "NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_10"},
	{"no GPUs", func(n *Node, _ *Options) { n.GPUs = nil }, "NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_10 !NCCL_NET_GDR_LEVEL"},
	{"one card for both", func(n *Node, _ *Options) { n.Ports = n.Ports[2:] }, "NCCL_IB_HCA==mlx5_10"},
	{"a card that is down", func(n *Node, _ *Options) { n.Ports[1].State = "DOWN" }, "NCCL_IB_HCA==mlx5_0 warning:mlx5_1_port_1_of_GPU_1_is_DOWN"},
	{"a second port that is down", func(n *Node, _ *Options) {
		p := n.Ports[1]
		p.Number, p.State = 2, "DOWN"
		n.Ports = append(n.Ports, p)
	}, "NCCL_IB_HCA==mlx5_0,mlx5_1:1 !warning"},
	{"all are down", func(n *Node, _ *Options) {
		for i := range n.Ports {
			n.Ports[i].State = "INIT"
		}
	}, "!NCCL_NET NCCL_IB_HCA warning:is_INIT"},
	{"a slower card of another model", func(n *Node, _ *Options) { n.Ports[1].Gbit, n.Ports[1].Model = 100, "1019" }, "NCCL_IB_HCA==mlx5_0 !warning"},
	{"a slow link", func(n *Node, _ *Options) { n.Ports[1].Gbit = 200 }, "NCCL_IB_HCA==mlx5_0,mlx5_1 warning:mlx5_1_port_1_runs_at_200"},
	{"Ethernet for storage at the same switch", func(n *Node, _ *Options) {
		p := n.Ports[0]
		p.Device, p.Layer = "mlx5_2", "Ethernet"
		n.Ports = append(n.Ports, p)
	}, "NCCL_IB_HCA==mlx5_0,mlx5_1 NCCL_NET=IB"},
	{"InfiniBand for storage, RoCE at the GPUs", func(n *Node, _ *Options) {
		roce(n)
		n.Ports[2].Layer, n.Ports[2].GIDs = "InfiniBand", nil
	}, "NCCL_IB_HCA==mlx5_0,mlx5_1 NCCL_IB_GID_INDEX=3"},
	{"soft RoCE", func(n *Node, _ *Options) {
		p := n.Ports[0]
		p.Device, p.OnPCI = "rxe0", false
		n.Ports = append(n.Ports, p)
	}, "NCCL_IB_HCA==mlx5_0,mlx5_1"},
	{"only soft RoCE", func(n *Node, _ *Options) { n.Ports = n.Ports[:1]; n.Ports[0].OnPCI = false }, "NCCL_IB_HCA !NCCL_NET"},
	{"nothing to open", func(n *Node, _ *Options) { n.Modules.Verbs = false }, "NCCL_IB_HCA !NCCL_NET warning:/dev/infiniband_is_not_here"},
	{"whether there is something to open is not known", func(n *Node, _ *Options) { n.Modules.Verbs, n.Modules.DevKnown = false, false }, "NCCL_IB_HCA==mlx5_0,mlx5_1"},
	{"no RDMA", func(n *Node, _ *Options) { n.Ports = nil }, "NCCL_IB_HCA NCCL_IB_DISABLE !NCCL_NET !OMPI_MCA_coll_hcoll_enable !warning"},
	{"--no-ib", func(_ *Node, o *Options) { o.NoIB = true }, "NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_IB_HCA !NCCL_NET_PLUGIN"},
	{"--no-ib and a plugin", func(n *Node, o *Options) { o.NoIB = true; n.Plugins = []Plugin{ofiPlugin, sharpPlugin} }, "NCCL_NET=Socket NCCL_NET_PLUGIN=none"},

	// RoCE.
	{"RoCE", func(n *Node, _ *Options) { roce(n) }, "NCCL_IB_HCA==mlx5_0,mlx5_1 NCCL_IB_GID_INDEX=3 NCCL_IB_ADAPTIVE_ROUTING !NCCL_IB_ADDR_FAMILY !NCCL_COLLNET_ENABLE"},
	{"RoCE at different indices", func(n *Node, _ *Options) { roce(n); n.Ports[1].GIDs[3].Index = 5 }, "NCCL_IB_GID_INDEX NCCL_IB_HCA==mlx5_0,mlx5_1"},
	{"RoCE with IPv6 only", func(n *Node, _ *Options) {
		roce(n)
		for i := range n.Ports {
			n.Ports[i].GIDs[3].Addr = addr(fmt.Sprintf("fd02::%d", i+1))
		}
	}, "NCCL_IB_GID_INDEX=3 NCCL_IB_ADDR_FAMILY=AF_INET6"},
	{"RoCE with link-local addresses only", func(n *Node, _ *Options) {
		roce(n)
		for i := range n.Ports {
			n.Ports[i].GIDs = n.Ports[i].GIDs[:2]
		}
	}, "NCCL_IB_GID_INDEX warning:no_RoCE_port_has_an_address"},
	{"a RoCE port without an address", func(n *Node, _ *Options) { roce(n); n.Ports[1].GIDs = n.Ports[1].GIDs[:2] }, "NCCL_IB_HCA==mlx5_0 NCCL_IB_GID_INDEX=3 warning:mlx5_1_port_1_has_no_RoCE_v2_address"},
	{"RoCE by IPv4 beside TCP by IPv6", func(n *Node, _ *Options) {
		roce(n)
		n.Routes = []Route{{To: prefix("::/0"), Dev: "eth0"}}
	}, "NCCL_SOCKET_FAMILY=AF_INET6 NCCL_IB_ADDR_FAMILY=AF_INET"},
	{"a VLAN's address after the port's own", func(n *Node, _ *Options) {
		roce(n)
		for i := range n.Ports {
			g := n.Ports[i].GIDs
			n.Ports[i].GIDs = []GID{{2, addr("10.7.0.1"), roce2, "vlan7"}, g[3]}
		}
	}, "NCCL_IB_GID_INDEX=3"},

	// Plugins.
	{"SHARP's plugin, not asked for", func(n *Node, _ *Options) { n.Plugins = []Plugin{sharpPlugin} }, "NCCL_NET_PLUGIN=none NCCL_NET=IB NCCL_COLLNET_ENABLE !SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING"},
	{"--sharp", func(n *Node, o *Options) { n.Plugins = []Plugin{sharpPlugin}; o.SHARP = true }, "NCCL_COLLNET_ENABLE=1 SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING=1 NCCL_NET NCCL_ALGO !NCCL_NET_PLUGIN !warning"},
	{"--sharp, where the loader does not look", func(n *Node, o *Options) {
		p := sharpPlugin
		p.Listed = false
		n.Plugins, o.SHARP = []Plugin{p}, true
	}, "NCCL_COLLNET_ENABLE=1 warning:where_the_loader_does_not_look"},
	{"--sharp with assay's name", func(n *Node, o *Options) { n.Plugins = []Plugin{namedSharp}; o.SHARP = true }, "NCCL_COLLNET_ENABLE=1 NCCL_NET_PLUGIN=sharp NCCL_NET !warning"},
	{"SHARP's plugin with assay's name, not asked for", func(n *Node, _ *Options) { n.Plugins = []Plugin{namedSharp} }, "NCCL_NET=IB NCCL_COLLNET_ENABLE !NCCL_NET_PLUGIN !warning"},
	{"a job that sets what SHARP needs", func(n *Node, o *Options) {
		n.Plugins = []Plugin{namedSharp}
		o.Env = []Setting{{Name: "NCCL_COLLNET_ENABLE", Value: "1", From: "environment"}, {Name: "NCCL_NET_PLUGIN", Value: "sharp", From: "environment"}}
	}, "NCCL_NET !NCCL_NET=IB !warning"},
	{"a job that names SHARP's plugin as it is not called here", func(n *Node, o *Options) {
		n.Plugins = []Plugin{sharpPlugin}
		o.Env = []Setting{{Name: "NCCL_COLLNET_ENABLE", Value: "1", From: "environment"}, {Name: "NCCL_NET_PLUGIN", Value: "sharp", From: "environment"}}
	}, "NCCL_NET warning:the_SHARP_plugin_here_is_/opt/sharp/libnccl-net.so"},
	{"a job that wants SHARP without a plugin", func(_ *Node, o *Options) {
		o.Env = []Setting{{Name: "NCCL_COLLNET_ENABLE", Value: "1", From: "environment"}}
	}, "NCCL_NET=IB warning:there_is_no_SHARP_plugin"},
	{"--sharp without a plugin", func(_ *Node, o *Options) { o.SHARP = true }, "!NCCL_COLLNET_ENABLE NCCL_NET=IB warning:there_is_no_SHARP_plugin"},
	{"--sharp over RoCE", func(n *Node, o *Options) { roce(n); n.Plugins = []Plugin{sharpPlugin}; o.SHARP = true }, "!NCCL_COLLNET_ENABLE warning:the_data_plane_is_RoCE"},
	{"somebody's plugin", func(n *Node, _ *Options) {
		n.Plugins = []Plugin{{Path: "/x/libnccl-net.so", Kind: PluginOther, Listed: true}}
	}, "NCCL_NET !NCCL_NET_PLUGIN"},
	{"EFA", func(n *Node, _ *Options) { efa(n); n.Plugins = []Plugin{ofiPlugin} }, "FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1 NCCL_NET_PLUGIN=ofi OMPI_MCA_pml=^ucx NCCL_IB_HCA NCCL_NET NCCL_PROTO FI_EFA_FORK_SAFE !OMPI_MCA_coll_hcoll_enable !NCCL_IB_GID_INDEX !warning"},
	{"EFA of the first generation", func(n *Node, _ *Options) { efa(n); n.Ports[0].Model = firstEFA; n.Plugins = []Plugin{ofiPlugin} }, "FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA"},
	{"EFA of an instance that nobody knows", func(n *Node, _ *Options) { efa(n); n.Platform, n.Plugins = "", []Plugin{ofiPlugin} }, "FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA !warning"},
	{"EFA without the plugin", func(n *Node, _ *Options) { efa(n) }, "FI_PROVIDER=efa NCCL_NET_PLUGIN warning:OFI_plugin"},
	{"EFA and a plugin that is not on the loader's way", func(n *Node, _ *Options) {
		efa(n)
		p := ofiPlugin
		p.Listed = false
		n.Plugins = []Plugin{p}
	}, "NCCL_NET_PLUGIN=ofi warning:LD_LIBRARY_PATH=/opt/ofi:"},
	{"EFA and another card", func(n *Node, _ *Options) {
		other := n.Ports[2]
		efa(n)
		n.Ports[2], n.Plugins = other, []Plugin{ofiPlugin}
	}, "FI_PROVIDER=efa NCCL_IB_HCA"},

	// GPU memory.
	{"nothing for GPUDirect RDMA", func(n *Node, _ *Options) { n.Modules.PeerMem = false }, "warning:cannot_reach_GPU_memory"},
	{"DMA buffers", func(n *Node, _ *Options) { n.Modules.PeerMem, n.Modules.DMABuf = false, true }, "!warning"},
	{"no GPUs, nothing for GPUDirect RDMA", func(n *Node, _ *Options) { n.GPUs, n.Modules.PeerMem = nil, false }, "!warning"},
	{"gdrdrv", func(n *Node, _ *Options) { n.Modules.GDRDrv, n.Modules.GDRDev = true, true }, "NCCL_GDRCOPY_ENABLE"},
	{"--gdrcopy", func(n *Node, o *Options) { n.Modules.GDRDrv, n.Modules.GDRDev, o.GDRCopy = true, true, true }, "NCCL_GDRCOPY_ENABLE=1 !warning"},
	{"--gdrcopy without the module", func(_ *Node, o *Options) { o.GDRCopy = true }, "!NCCL_GDRCOPY_ENABLE warning:gdrdrv_is_not_loaded"},
	{"--gdrcopy without the device", func(n *Node, o *Options) { n.Modules.GDRDrv, o.GDRCopy = true, true }, "!NCCL_GDRCOPY_ENABLE warning:no_/dev/gdrdrv"},

	// NVLink between hosts.
	{"NVL72", func(n *Node, _ *Options) {
		n.NVLinkHosts, n.IMEX = true, IMEX{Known: true, Driver: true, Channels: []string{"channel0"}}
	}, "NCCL_MNNVL_ENABLE=1 NCCL_CUMEM_ENABLE=1 NCCL_NET_GDR_C2C=1 NVIDIA_IMEX_CHANNELS !warning"},
	{"NVL72 without a channel", func(n *Node, _ *Options) { n.NVLinkHosts, n.IMEX.Driver = true, true }, "NCCL_MNNVL_ENABLE !NCCL_CUMEM_ENABLE warning:has_no_channel"},
	{"NVL72 whose driver has none", func(n *Node, _ *Options) { n.NVLinkHosts = true }, "NCCL_MNNVL_ENABLE warning:driver_offers_no_IMEX"},
	{"NVL72, not known", func(n *Node, _ *Options) { n.NVLinkHosts, n.IMEX = true, IMEX{} }, "NCCL_MNNVL_ENABLE !warning"},
	{"a channel without NVL72", func(n *Node, _ *Options) { n.IMEX.Channels = []string{"channel0"} }, "NCCL_MNNVL_ENABLE !NCCL_CUMEM_ENABLE !warning"},

	// Virtual machines.
	{"a cloud's file", func(n *Node, _ *Options) { hideSwitches(n); n.TopoFiles = []string{"/opt/topo.xml"} }, "NCCL_TOPO_FILE=/opt/topo.xml NCCL_NET_GDR_LEVEL !warning"},
	{"a cloud without a file", func(n *Node, _ *Options) { hideSwitches(n) }, "!NCCL_TOPO_FILE warning:hides_its_PCI_switches"},
	{"a cloud that shows its switches", func(n *Node, _ *Options) { n.Cloud, n.TopoFiles = "oci", []string{"/opt/topo.xml"} }, "!NCCL_TOPO_FILE !warning"},
	{"no cloud and no switches", func(n *Node, _ *Options) { hideSwitches(n); n.Cloud = "" }, "!NCCL_TOPO_FILE !warning"},

	// Limits.
	{"memlock", func(n *Node, _ *Options) { n.Limits.Memlock = limit(64 << 10) }, "warning:may_lock_64_KiB"},
	{"memlock and CAP_IPC_LOCK", func(n *Node, _ *Options) { n.Limits.Memlock, n.Limits.IPCLock = limit(64<<10), true }, "!warning"},
	{"memlock without RDMA", func(n *Node, _ *Options) { n.Limits.Memlock, n.Ports = limit(64<<10), nil }, "!warning"},
	{"shm", func(n *Node, _ *Options) { n.Limits.SHM = limit(64 << 20) }, "warning:/dev/shm_has_64_MiB"},
	{"shm of 1 GiB", func(n *Node, _ *Options) { n.Limits.SHM = limit(1 << 30) }, "!warning"},
	{"shm with one GPU", func(n *Node, _ *Options) { n.Limits.SHM, n.GPUs = limit(64<<20), n.GPUs[:1] }, "!warning"},
	{"pids", func(n *Node, _ *Options) { n.Limits.PIDs = limit(511) }, "warning:may_have_511_threads"},
	{"pids enough", func(n *Node, _ *Options) { n.Limits.PIDs = limit(512) }, "!warning"},
	{"limits not known", func(n *Node, _ *Options) { n.Limits = Limits{} }, "!warning"},
	{"NCCL's reader finds fault", func(_ *Node, o *Options) { o.Problems = []string{"NCCL_IB_TC=x: it is not an integer"} }, "warning:it_is_not_an_integer"},
}

// hideSwitches makes plain a cloud's virtual machine.
func hideSwitches(n *Node) {
	n.Cloud = "azure"
	n.Ports = n.Ports[:2]
	for i := range n.Ports {
		n.Ports[i].Paths = []string{"SYS", "SYS"}
	}
}

func TestRules(t *testing.T) {
	for _, tt := range rules {
		t.Run(strings.ReplaceAll(tt.name, "/", "-"), func(t *testing.T) {
			n, o := plain(), Options{}
			tt.change(n, &o)
			holds(t, n, Make(n, o), tt.want)
		})
	}
}

// holds checks a plan against rules' third column.
func holds(t *testing.T, n *Node, p *Plan, want string) {
	t.Helper()
	warnings := ""
	for _, w := range p.Warnings {
		warnings += w.What + "; " + w.Remedy + "\n"
	}
	for item := range strings.FieldsSeq(want) {
		name, value, set := strings.Cut(item, "=")
		inSet := slices.IndexFunc(p.Set, func(v Variable) bool { return v.Name == name })
		inUnset := slices.ContainsFunc(p.Unset, func(u Unset) bool { return u.Name == name })
		text, warning := strings.CutPrefix(item, "warning:")
		absent, not := strings.CutPrefix(item, "!")
		switch {
		case item == "!warning":
			if len(p.Warnings) > 0 {
				t.Errorf("warnings:\n%swant none", warnings)
			}
		case not:
			if slices.ContainsFunc(p.Set, func(v Variable) bool { return v.Name == absent }) {
				t.Errorf("%s is set", absent)
			}
			if slices.ContainsFunc(p.Unset, func(u Unset) bool { return u.Name == absent }) {
				t.Errorf("%s is said to be left alone", absent)
			}
		case warning:
			if !strings.Contains(warnings, strings.ReplaceAll(text, "_", " ")) && !strings.Contains(strings.ReplaceAll(warnings, " ", "_"), text) {
				t.Errorf("warnings:\n%swant one that says: %s", warnings, text)
			}
		case set && (inSet < 0 || p.Set[inSet].Value != value):
			t.Errorf("%s is not set; set: %v", item, p.Set)
		case !set && (inSet >= 0 || !inUnset):
			t.Errorf("%s is not left alone: %v", name, p.Unset)
		}
	}
	consistent(t, n, p)
}

// consistent are what every plan must be.
func consistent(t *testing.T, n *Node, p *Plan) {
	t.Helper()
	seen := map[string]bool{}
	once := func(name, reason string) {
		if name == "" || seen[name] {
			t.Errorf("%q is there twice, or has no name", name)
		}
		if seen[name] = true; strings.TrimSpace(reason) == "" {
			t.Errorf("%s has no reason", name)
		}
	}
	for _, v := range p.Set {
		once(v.Name, v.Reason)
		if v.Value == "" {
			t.Errorf("%s is set to nothing", v.Name)
		}
	}
	for _, u := range p.Unset {
		once(u.Name, u.Reason)
	}
	for _, k := range p.Kept {
		once(k.Name, k.From)
	}
	for _, w := range p.Warnings {
		if w.What == "" || w.Remedy == "" {
			t.Errorf("warning %+v", w)
		}
	}
	for _, c := range p.Data.Ports {
		if c.Used == (c.Why != "") {
			t.Errorf("%s:%d used %v, why %q", c.Device, c.Port, c.Used, c.Why)
		}
	}
	if len(p.Data.Ports) != len(n.Ports) || (p.Data.Kind == Sockets) != (len(p.Data.used()) == 0) {
		t.Errorf("data: %+v", p.Data)
	}
	if p.Control.Interface == "lo" || strings.HasPrefix(p.Control.Interface, "docker") || p.Control.Why == "" {
		t.Errorf("control: %+v", p.Control)
	}
}
