// Package netenv says which environment variables NCCL, UCX, libfabric and
// Open MPI need on a node so that the control plane (start-up, over TCP) and
// the data plane (RDMA) take the ways that they should, and gives the reason
// for each. It also says what it leaves alone though people would expect it,
// keeps what the user has set and warns where that contradicts the node, and
// names the limits that would stop RDMA.
//
// It is pure: whoever reads a machine describes it as a [Node], and [Make] does
// the rest. docs/env.md has the rules with their sources.
package netenv

import "net/netip"

// A Node is what was found of a machine, without a judgement. What is not
// known stays zero.
type Node struct {
	Host     string `json:"host,omitempty"`
	Platform string `json:"platform,omitempty"` // key of the hardware data base
	// NVLinkHosts says that the platform's NVLinks join GPUs of several hosts.
	NVLinkHosts bool   `json:"nvlink_hosts,omitempty"`
	Cloud       string `json:"cloud,omitempty"`     // key of the hardware data base
	Container   string `json:"container,omitempty"` // what contains the process

	GPUs       []GPU       `json:"gpus"`
	Ports      []Port      `json:"rdma_ports"`
	Interfaces []Interface `json:"interfaces"`
	Routes     []Route     `json:"routes"`
	Peers      []Peer      `json:"peers,omitempty"` // the other hosts, if somebody named them

	Modules Modules  `json:"modules"`
	Plugins []Plugin `json:"nccl_net_plugins"` // in the order in which the loader looks
	IMEX    IMEX     `json:"imex"`
	Limits  Limits   `json:"limits"`
	// TopoFiles are the files that clouds ship for NCCL_TOPO_FILE and that are
	// there, the one for this platform first.
	TopoFiles []string `json:"topo_files,omitempty"`
}

// A GPU is one on PCI, whether this process may use it or not: all ranks of a
// host must come to the same list of network cards.
type GPU struct {
	BusID string `json:"bus_id"`
	Name  string `json:"name,omitempty"`
	NUMA  int    `json:"numa"`
}

// A Port is a port of an RDMA device.
type Port struct {
	Device  string   `json:"device"`
	Number  int      `json:"port"`
	OnPCI   bool     `json:"on_pci"`
	BusID   string   `json:"bus_id,omitempty"`
	Vendor  string   `json:"pci_vendor,omitempty"` // four hex digits
	Model   string   `json:"pci_device,omitempty"` // four hex digits
	NUMA    int      `json:"numa"`
	Layer   string   `json:"link_layer,omitempty"` // InfiniBand, Ethernet, Unspecified (EFA)
	State   string   `json:"state,omitempty"`      // ACTIVE, DOWN, …
	Gbit    float64  `json:"gbit_per_s,omitempty"`
	Netdevs []string `json:"netdevs,omitempty"`
	GIDs    []GID    `json:"gids,omitempty"`
	// Paths are nvidia-smi's names of the ways over PCI to Node.GPUs.
	Paths []string `json:"paths,omitempty"`
}

// A GID is an entry of a port's table of addresses.
type GID struct {
	Index  int        `json:"index"`
	Addr   netip.Addr `json:"addr"` // an IPv4 address where it stands for one
	Type   string     `json:"type"` // IB/RoCE v1, RoCE v2
	Netdev string     `json:"netdev,omitempty"`
}

// An Interface is a network interface.
type Interface struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind,omitempty"` // bridge, bond, vlan, vxlan, wlan, loopback; "": plain
	State   string         `json:"state,omitempty"`
	Virtual bool           `json:"virtual,omitempty"` // there is no device below it
	Master  string         `json:"master,omitempty"`
	Lower   []string       `json:"lower,omitempty"`
	Addrs   []netip.Prefix `json:"addrs,omitempty"` // with their networks' lengths
}

// A Route is a way to somewhere.
type Route struct {
	To      netip.Prefix `json:"to"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
	Dev     string       `json:"dev"`
	Metric  uint32       `json:"metric,omitempty"`
}

// A Peer is another host of the job.
type Peer struct {
	Name  string       `json:"name"`
	Addrs []netip.Addr `json:"addrs"`
	Err   string       `json:"error,omitempty"` // why there are no addresses
}

// Modules are the parts of the kernel by which network cards and processors
// reach GPU memory.
type Modules struct {
	Known   bool `json:"known"`
	PeerMem bool `json:"nvidia_peermem"`
	DMABuf  bool `json:"dmabuf"` // the driver's open kernel modules
	GDRDrv  bool `json:"gdrdrv"`
	// GDRDev says that /dev/gdrdrv is there, Verbs that /dev/infiniband has
	// devices, both only if DevKnown.
	GDRDev   bool `json:"dev_gdrdrv"`
	Verbs    bool `json:"dev_uverbs"`
	DevKnown bool `json:"dev_known"`
}

// The kinds of network plugins.
const (
	PluginOFI       = "ofi"
	PluginSHARP     = "sharp"
	PluginSpectrumX = "spectrum-x" // goes by name only: who runs the fabric says that jobs are to use it
	PluginOther     = "other"
)

// A Plugin is a network plugin of NCCL.
type Plugin struct {
	Path string `json:"path"`
	// Name is what NCCL_NET_PLUGIN finds it by; "": it is libnccl-net.so, which is
	// loaded unasked.
	Name string `json:"name,omitempty"`
	Kind string `json:"kind"`
	// Listed says that the loader looks there.
	Listed bool `json:"listed"`
}

// IMEX is what lets GPUs of several hosts share memory over NVLink.
type IMEX struct {
	Known    bool     `json:"known"` // /dev was looked at
	Driver   bool     `json:"driver"`
	Channels []string `json:"channels"` // channel0, …
}

// Limits are those of the process and its container; nil: not known.
type Limits struct {
	Memlock *uint64 `json:"memlock,omitempty"` // bytes; Unlimited
	// IPCLock says that CAP_IPC_LOCK of the host's lifts Memlock.
	IPCLock bool    `json:"cap_ipc_lock,omitempty"`
	SHM     *uint64 `json:"shm_bytes,omitempty"` // of /dev/shm; 0: there is none
	PIDs    *uint64 `json:"pids,omitempty"`      // of the control group; Unlimited
}

// Unlimited is the value for no limit.
const Unlimited = ^uint64(0)

// iface finds an interface by name.
func (n *Node) iface(name string) (Interface, bool) {
	for _, i := range n.Interfaces {
		if i.Name == name {
			return i, true
		}
	}
	return Interface{}, false
}
