// Package netenv determines the environment variables that NCCL, UCX, libfabric and Open MPI need
// on a node so that the control plane (start-up, over TCP) and the data plane (RDMA) take the right
// paths, with the reason for each. It also reports which variables it leaves alone although a user
// may expect them, keeps the user's settings, warns where these contradict the node, and names the
// limits that would stop RDMA.
//
// The package is pure: the caller reads the machine and describes it as a [Node], and [Make] plans
// its environment. docs/env.md has the rules with their sources.
package netenv

import (
	"cmp"
	"net/netip"
)

// A Node holds the facts about a machine, without judgement. Unknown fields are zero.
type Node struct {
	Host     string `json:"host,omitempty"`
	Platform string `json:"platform,omitempty"` // key of the hardware database
	// NVLinkHosts says that the platform's NVLinks connect GPUs of several hosts.
	NVLinkHosts bool   `json:"nvlink_hosts,omitempty"`
	Cloud       string `json:"cloud,omitempty"`     // key of the hardware database
	Container   string `json:"container,omitempty"` // kind of container around the process

	GPUs       []GPU       `json:"gpus"`
	Ports      []Port      `json:"rdma_ports"`
	Interfaces []Interface `json:"interfaces"`
	Routes     []Route     `json:"routes"`
	Peers      []Peer      `json:"peers,omitempty"` // the other hosts, if the user named them

	Modules Modules  `json:"modules"`
	Plugins []Plugin `json:"nccl_net_plugins"` // in the loader's search order
	IMEX    IMEX     `json:"imex"`
	Limits  Limits   `json:"limits"`
	// TopoFiles are the existing files that clouds ship for NCCL_TOPO_FILE, the one for this
	// platform first.
	TopoFiles []string `json:"topo_files,omitempty"`
}

// A GPU is a GPU on PCI, whether or not this process may use it: all ranks of a host must arrive at
// the same list of network cards.
type GPU struct {
	BusID  string `json:"bus_id"`
	Name   string `json:"name,omitempty"`
	NUMA   int    `json:"numa"`
	NVLink bool   `json:"nvlink,omitempty"` // its model has NVLinks
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
	// Paths are the types of the PCI paths to Node.GPUs, in nvidia-smi's names.
	Paths []string `json:"paths,omitempty"`
}

// name is the port's device, or where it is if the name is not known.
func (p Port) name() string { return cmp.Or(p.Device, p.BusID, "a device without a name") }

// A GID is an entry of a port's GID table.
type GID struct {
	Index  int        `json:"index"`
	Addr   netip.Addr `json:"addr"` // an IPv4 address if it represents one
	Type   string     `json:"type"` // IB/RoCE v1, RoCE v2
	Netdev string     `json:"netdev,omitempty"`
}

// An Interface is a network interface.
type Interface struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind,omitempty"` // bridge, bond, vlan, vxlan, wlan, loopback; "": plain
	State   string         `json:"state,omitempty"`
	Virtual bool           `json:"virtual,omitempty"` // no device is below it
	Master  string         `json:"master,omitempty"`
	Lower   []string       `json:"lower,omitempty"`
	Addrs   []netip.Prefix `json:"addrs,omitempty"` // with the prefix lengths of their networks
}

// A Route is an entry of the routing table.
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

// Modules are the kernel modules through which network cards and processors reach GPU memory.
type Modules struct {
	Known   bool `json:"known"`
	PeerMem bool `json:"nvidia_peermem"`
	DMABuf  bool `json:"dmabuf"` // the driver has open kernel modules
	GDRDrv  bool `json:"gdrdrv"`
	// GDRDev says that /dev/gdrdrv exists, Verbs that /dev/infiniband has devices. Both are valid
	// only if DevKnown.
	GDRDev   bool `json:"dev_gdrdrv"`
	Verbs    bool `json:"dev_uverbs"`
	DevKnown bool `json:"dev_known"`
}

// The kinds of network plugins.
const (
	PluginOFI       = "ofi"
	PluginSHARP     = "sharp"
	PluginSpectrumX = "spectrum-x" // only used by name: the operator of the fabric decides whether jobs use it
	PluginOther     = "other"
)

// A Plugin is a network plugin of NCCL.
type Plugin struct {
	Path string `json:"path"`
	// Name is the value of NCCL_NET_PLUGIN that selects it; "": it is libnccl-net.so, which NCCL
	// loads by default.
	Name string `json:"name,omitempty"`
	Kind string `json:"kind"`
	// Listed says that the loader searches its directory.
	Listed bool `json:"listed"`
}

// IMEX is the service through which GPUs of several hosts share memory over NVLink.
type IMEX struct {
	Known    bool     `json:"known"` // /dev was read
	Driver   bool     `json:"driver"`
	Channels []string `json:"channels"` // channel0, …
}

// Limits are the limits of the process and its container; nil: not known.
type Limits struct {
	Memlock *uint64 `json:"memlock,omitempty"` // bytes; Unlimited
	// IPCLock says that the process has the host's CAP_IPC_LOCK, which lifts Memlock.
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
