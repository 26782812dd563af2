package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/coll/topology"
	"github.com/assay-hpc/assay/harness/netenv"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// node describes the machine to netenv.
func (o *envOptions) node(machine sysfs.FS, env []netenv.Setting) (*netenv.Node, error) {
	sys, err := o.system(machine, env)
	if err != nil {
		return nil, err
	}
	for _, note := range sys.Notes {
		fmt.Fprintln(o.stderr, "harness:", note)
	}
	n := &netenv.Node{Host: sys.Host, Container: machine.Container(), Modules: modules(machine), IMEX: imex(machine), Limits: limits(machine)}
	r := nodeReader{fs: machine, node: n, sys: sys, stderr: o.stderr}
	if err := r.recognise(); err != nil {
		return nil, err
	}
	r.ports()
	r.network(o.root == "/")
	n.Plugins = plugins(o.root, valueOf(env, "LD_LIBRARY_PATH"))
	return n, nil
}

func valueOf(env []netenv.Setting, name string) string {
	i := slices.IndexFunc(env, func(s netenv.Setting) bool { return s.Name == name })
	if i < 0 {
		return ""
	}
	return env[i].Value
}

// system is where the machine's devices sit. The driver is not asked: it tells
// of the GPUs that this process may use, and all processes of a host must come
// to the same list of network cards.
func (o *envOptions) system(machine sysfs.FS, env []netenv.Setting) (*topology.System, error) {
	if o.topo != "" {
		return loadTopology("--topo", o.topo)
	}
	sys, err := topology.Read(topology.Sources{FS: machine})
	if err != nil {
		return nil, err
	}
	if name := valueOf(env, "NCCL_TOPO_FILE"); name != "" {
		text, err := machine.Text(name)
		if err != nil {
			fmt.Fprintf(o.stderr, "harness: NCCL_TOPO_FILE: %v\n", err)
			return sys, nil
		}
		file, err := topology.Load(strings.NewReader(text))
		if err != nil {
			return nil, usagef("NCCL_TOPO_FILE: %s: %w", name, err)
		}
		sys.Overlay(file)
	}
	return sys, nil
}

// A nodeReader fills in a Node.
type nodeReader struct {
	fs     sysfs.FS
	node   *netenv.Node
	sys    *topology.System
	stderr io.Writer
}

// note says what could not be read. What is not there needs no word.
func (r *nodeReader) note(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(r.stderr, "harness:", err)
	}
}

// recognise finds the platform, and what follows from it.
func (r *nodeReader) recognise() error {
	db, err := platform.Load()
	if err != nil {
		return err
	}
	p := describe(r.sys, false)
	p.DMI, err = r.fs.DMI()
	r.note(err)
	known := db.Recognise(p)
	r.node.Platform, r.node.Cloud = known.Platform, known.Cloud
	if of := db.Platforms[known.Platform]; of != nil {
		r.node.NVLinkHosts = of.GPUsPerDomain > of.GPUsPerNode.Max()
	}
	for _, name := range netenv.TopoFiles[known.Platform] {
		if _, err := r.fs.Text(name); err == nil {
			r.node.TopoFiles = append(r.node.TopoFiles, name)
		}
	}
	r.node.GPUs = []netenv.GPU{}
	for _, g := range r.sys.GPUs {
		name := g.Name
		if _, model := db.IdentifyGPU(pciNumber(g.Device), g.Name); model != nil {
			name = model.Name
		}
		r.node.GPUs = append(r.node.GPUs, netenv.GPU{BusID: g.BusID.String(), Name: name, NUMA: g.NUMA})
	}
	return nil
}

// ports lists those that the kernel has, with the places that the topology
// has for them; without any, the topology's.
func (r *nodeReader) ports() {
	r.node.Ports = []netenv.Port{}
	devices, err := r.fs.RDMADevices()
	r.note(err)
	for i, c := range r.sys.NICs {
		if c.RDMA && len(devices) == 0 {
			r.node.Ports = append(r.node.Ports, r.place(netenv.Port{Device: c.Name, Number: max(c.Port, 1), Layer: layerOf(c), State: c.State, Gbit: float64(c.Mbit) / 1000}, i))
		}
	}
	if len(r.node.Ports) > 0 { // another machine's, of whose modules and devices nothing is known
		r.node.Modules, r.node.IMEX = netenv.Modules{}, netenv.IMEX{Channels: []string{}}
	}
	for _, d := range devices {
		for _, p := range d.Ports {
			port := netenv.Port{Device: d.Name, Number: p.Number, Layer: p.LinkLayer, State: p.State, Gbit: p.Rate.Gbit, Netdevs: d.Netdevs, OnPCI: d.OnPCI}
			if d.OnPCI {
				port.BusID = d.BusID.String()
			}
			gids, err := r.fs.GIDs(d.Name, p.Number)
			r.note(err)
			for _, g := range gids {
				if a, err := netip.ParseAddr(g.GID); err == nil {
					port.GIDs = append(port.GIDs, netenv.GID{Index: g.Index, Addr: a.Unmap(), Type: g.Type, Netdev: g.Netdev})
				}
			}
			port.Netdevs = netdevsOf(port)
			at := slices.IndexFunc(r.sys.NICs, func(c topology.NIC) bool { return c.Name == d.Name && (c.Port == 0 || c.Port == p.Number) })
			if at < 0 && d.OnPCI {
				at = slices.IndexFunc(r.sys.NICs, func(c topology.NIC) bool { return c.OnPCI && c.BusID == d.BusID })
			}
			r.node.Ports = append(r.node.Ports, r.place(port, at))
		}
	}
}

// layerOf is a card's link layer; NCCL's files tell it by the PCI class alone.
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

// netdevsOf are the interfaces of a port: those of its function, or, where a
// function has several ports or a bond stands for it, those that its addresses
// name. VLANs are interfaces on it, and count too.
func netdevsOf(p netenv.Port) []string {
	out := slices.Clone(p.Netdevs)
	for _, g := range p.GIDs {
		if g.Netdev != "" && !slices.Contains(out, g.Netdev) {
			out = append(out, g.Netdev)
		}
	}
	return out
}

// place adds where a NIC of the topology sits.
func (r *nodeReader) place(p netenv.Port, nic int) netenv.Port {
	p.NUMA = -1
	if nic < 0 {
		return p
	}
	c := r.sys.NICs[nic]
	p.NUMA, p.Vendor, p.Model, p.OnPCI = c.NUMA, pciNumber(c.Vendor), pciNumber(c.Device), p.OnPCI || c.OnPCI
	if p.BusID == "" && c.OnPCI {
		p.BusID = c.BusID.String()
	}
	for g := range r.sys.GPUs {
		p.Paths = append(p.Paths, r.sys.PCIPath(g, len(r.sys.GPUs)+nic).Label)
	}
	return p
}

// network lists interfaces and routes. Only the live machine tells its IPv4
// addresses.
func (r *nodeReader) network(live bool) {
	addrs := map[string][]netip.Prefix{}
	six, err := r.fs.Addresses6()
	r.note(err)
	for _, a := range six {
		addrs[a.Dev] = append(addrs[a.Dev], a.Prefix)
	}
	if live {
		addrs = liveAddresses()
	}
	r.node.Interfaces, r.node.Routes = []netenv.Interface{}, []netenv.Route{}
	list, err := r.fs.Interfaces()
	r.note(err)
	for _, i := range list {
		kind := i.Kind
		if i.Type == loopbackType {
			kind = "loopback"
		}
		r.node.Interfaces = append(r.node.Interfaces, netenv.Interface{
			Name: i.Name, Kind: kind, State: i.OperState, Virtual: i.Virtual, Master: i.Master, Lower: i.Lower, Addrs: addrs[i.Name],
		})
		delete(addrs, i.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(addrs)) { // a container may hide /sys/class/net
		r.node.Interfaces = append(r.node.Interfaces, netenv.Interface{Name: name, Addrs: addrs[name]})
	}
	routes, err := r.fs.Routes()
	r.note(err)
	for _, x := range routes {
		r.node.Routes = append(r.node.Routes, netenv.Route{To: x.To, Gateway: x.Gateway, Dev: x.Dev, Metric: x.Metric})
	}
}

// loopbackType is ARPHRD_LOOPBACK of linux/if_arp.h.
const loopbackType = 772

// liveAddresses are this machine's, IPv4 first.
func liveAddresses() map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	list, err := net.Interfaces()
	if err != nil {
		return out
	}
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has just gone
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
