package machine

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/assay-hpc/assay/internal/host/netenv"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
	"github.com/assay-hpc/assay/internal/platform"
)

// Environment describes the node for netenv. libraryPath is LD_LIBRARY_PATH, in which the loader
// searches for NCCL's plugins.
func (m *Machine) Environment(libraryPath string) (*netenv.Node, error) {
	n := &netenv.Node{Host: m.System.Host, Container: m.FS.Container(), Modules: modules(m.FS), IMEX: imex(m.FS), Limits: limits(m.FS)}
	e := environment{m, n}
	if err := e.recognise(); err != nil {
		return nil, err
	}
	e.ports()
	e.network(m.o.Root == "/")
	n.Plugins = plugins(m.o.Root, libraryPath)
	return n, nil
}

// An environment fills in a netenv.Node.
type environment struct {
	*Machine
	node *netenv.Node
}

// recognise determines the platform, and what follows from it.
func (e *environment) recognise() error {
	db, err := platform.Load()
	if err != nil {
		return err
	}
	p := describe(e.System, false)
	p.DMI, err = e.FS.DMI()
	e.failed(err)
	known := db.Recognise(p)
	e.node.Platform, e.node.Cloud = known.Platform, known.Cloud
	if of := db.Platforms[known.Platform]; of != nil {
		e.node.NVLinkHosts = of.GPUsPerDomain > of.GPUsPerNode.Max()
	}
	for _, name := range netenv.TopoFiles[known.Platform] {
		if _, err := e.FS.Text(name); err == nil {
			e.node.TopoFiles = append(e.node.TopoFiles, name)
		}
	}
	e.node.GPUs = []netenv.GPU{}
	for _, g := range e.System.GPUs {
		gpu := netenv.GPU{BusID: g.BusID.String(), Name: g.Name, NUMA: g.NUMA}
		if _, model := db.IdentifyGPU(pciNumber(g.Device), g.Name); model != nil {
			gpu.Name, gpu.NVLink = model.Name, model.NVLink != nil
		}
		e.node.GPUs = append(e.node.GPUs, gpu)
	}
	return nil
}

// ports lists the kernel's ports, with their locations in the topology. If there are none, it
// lists those of the topology.
func (e *environment) ports() {
	e.node.Ports = []netenv.Port{}
	devices, err := e.FS.RDMADevices()
	e.failed(err)
	for i, c := range e.System.NICs {
		if c.RDMA && len(devices) == 0 {
			e.node.Ports = append(e.node.Ports, e.place(netenv.Port{Device: c.Name, Number: max(c.Port, 1), Layer: layerOf(c), State: c.State, Gbit: float64(c.Mbit) / 1000}, i))
		}
	}
	if len(e.node.Ports) > 0 { // of another machine: its modules and devices are not known
		e.node.Modules, e.node.IMEX = netenv.Modules{}, netenv.IMEX{Channels: []string{}}
	}
	for _, d := range devices {
		for _, p := range d.Ports {
			port := netenv.Port{Device: d.Name, Number: p.Number, Layer: p.LinkLayer, State: p.State, Gbit: p.Rate.Gbit, Netdevs: d.Netdevs, OnPCI: d.OnPCI}
			if d.OnPCI {
				port.BusID = d.BusID.String()
			}
			gids, err := e.FS.GIDs(d.Name, p.Number)
			e.failed(err)
			for _, g := range gids {
				if a, err := netip.ParseAddr(g.GID); err == nil {
					port.GIDs = append(port.GIDs, netenv.GID{Index: g.Index, Addr: a.Unmap(), Type: g.Type, Netdev: g.Netdev})
				}
			}
			port.Netdevs = netdevsOf(port)
			at := slices.IndexFunc(e.System.NICs, func(c topology.NIC) bool { return c.Name == d.Name && (c.Port == 0 || c.Port == p.Number) })
			if at < 0 && d.OnPCI {
				at = slices.IndexFunc(e.System.NICs, func(c topology.NIC) bool { return c.OnPCI && c.BusID == d.BusID })
			}
			e.node.Ports = append(e.node.Ports, e.place(port, at))
		}
	}
}

// layerOf returns a card's link layer. NCCL's files only indicate it by the PCI class.
func layerOf(c topology.NIC) string {
	switch {
	case c.LinkLayer != "":
		return c.LinkLayer
	case c.Class>>8 == sysfs.ClassInfiniBand:
		return "InfiniBand"
	case c.Class>>8 == sysfs.ClassEthernet:
		return "Ethernet"
	}
	return ""
}

// netdevsOf returns the interfaces of a port: those of its PCI function and those that its GIDs
// name. A function may have several ports, or a bond may replace its interface. VLANs on it are
// interfaces, too.
func netdevsOf(p netenv.Port) []string {
	out := slices.Clone(p.Netdevs)
	for _, g := range p.GIDs {
		if g.Netdev != "" && !slices.Contains(out, g.Netdev) {
			out = append(out, g.Netdev)
		}
	}
	return out
}

// place adds the location of a NIC of the topology.
func (e *environment) place(p netenv.Port, nic int) netenv.Port {
	p.NUMA = -1
	if nic < 0 {
		return p
	}
	c := e.System.NICs[nic]
	p.NUMA, p.Vendor, p.Model, p.OnPCI = c.NUMA, pciNumber(c.Vendor), pciNumber(c.Device), p.OnPCI || c.OnPCI
	if p.BusID == "" && c.OnPCI {
		p.BusID = c.BusID.String()
	}
	for g := range e.System.GPUs {
		p.Paths = append(p.Paths, e.System.PCIPath(g, len(e.System.GPUs)+nic).Label)
	}
	return p
}

// network lists interfaces and routes. IPv4 addresses are only known on the live machine.
func (e *environment) network(live bool) {
	addrs := map[string][]netip.Prefix{}
	six, err := e.FS.Addresses6()
	e.failed(err)
	for _, a := range six {
		addrs[a.Dev] = append(addrs[a.Dev], a.Prefix)
	}
	if live {
		addrs = liveAddresses()
	}
	e.node.Interfaces, e.node.Routes = []netenv.Interface{}, []netenv.Route{}
	list, err := e.FS.Interfaces()
	e.failed(err)
	for _, i := range list {
		kind := i.Kind
		if i.Type == loopbackType {
			kind = "loopback"
		}
		e.node.Interfaces = append(e.node.Interfaces, netenv.Interface{
			Name: i.Name, Kind: kind, State: i.OperState, Virtual: i.Virtual, Master: i.Master, Lower: i.Lower, Addrs: addrs[i.Name],
		})
		delete(addrs, i.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(addrs)) { // a container may hide /sys/class/net
		e.node.Interfaces = append(e.node.Interfaces, netenv.Interface{Name: name, Addrs: addrs[name]})
	}
	routes, err := e.FS.Routes()
	e.failed(err)
	for _, x := range routes {
		e.node.Routes = append(e.node.Routes, netenv.Route{To: x.To, Gateway: x.Gateway, Dev: x.Dev, Metric: x.Metric})
	}
}

// loopbackType is ARPHRD_LOOPBACK of linux/if_arp.h.
const loopbackType = 772

// liveAddresses returns this machine's addresses, IPv4 first.
func liveAddresses() map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	list, err := net.Interfaces()
	if err != nil {
		return out
	}
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has just disappeared
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out[i.Name] = append(out[i.Name], p)
			}
		}
		slices.SortStableFunc(out[i.Name], func(a, b netip.Prefix) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
	}
	return out
}
