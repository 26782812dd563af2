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
	"strconv"
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
			r.node.Ports = append(r.node.Ports, r.place(netenv.Port{Device: c.Name, Number: max(c.Port, 1), Layer: c.LinkLayer, State: c.State, Gbit: float64(c.Mbit) / 1000}, i))
		}
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

// modules says how cards reach GPU memory.
func modules(machine sysfs.FS) netenv.Modules {
	var m netenv.Modules
	loaded, err := machine.Modules()
	m.Known = err == nil
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(loaded, n) })
	}
	m.PeerMem, m.GDRDrv = has("nvidia_peermem", "nv_peer_mem"), has("gdrdrv")
	driver, _ := machine.Text("/proc/driver/nvidia/version")
	m.DMABuf = strings.Contains(driver, "Open Kernel Module")
	dev, err := machine.Names("/dev")
	m.DevKnown = err == nil
	m.GDRDev = slices.Contains(dev, "gdrdrv")
	rdma, _ := machine.Names("/dev/infiniband")
	m.Verbs = slices.ContainsFunc(rdma, func(n string) bool { return strings.HasPrefix(n, "uverbs") })
	return m
}

// imex says whether memory can be shared over NVLink between hosts.
func imex(machine sysfs.FS) netenv.IMEX {
	x := netenv.IMEX{Channels: []string{}}
	if _, err := machine.Names("/dev"); err == nil {
		x.Known = true
	}
	devices, _ := machine.Text("/proc/devices")
	x.Driver = strings.Contains(devices, "nvidia-caps-imex-channels")
	names, _ := machine.Names("/dev/nvidia-caps-imex-channels")
	for _, n := range names {
		if strings.HasPrefix(n, "channel") {
			x.Channels = append(x.Channels, n)
		}
	}
	return x
}

// ipcLock is CAP_IPC_LOCK of linux/capability.h.
const ipcLock = 1 << 14

// limits reads those of this process and its container.
func limits(machine sysfs.FS) netenv.Limits {
	var l netenv.Limits
	if all, err := machine.Limits(); err == nil {
		if m, ok := all["Max locked memory"]; ok {
			l.Memlock = &m.Soft
		}
	}
	status, _ := machine.Text("/proc/self/status")
	users, _ := machine.Text("/proc/self/uid_map")
	// In a user namespace of its own a process's capabilities lift no limit of
	// the host's.
	l.IPCLock = capabilities(status)&ipcLock != 0 && strings.Join(strings.Fields(users), " ") == "0 0 4294967295"
	l.SHM = shmSize(machine)
	for _, name := range []string{"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"} {
		if text, err := machine.Text(name); err == nil {
			l.PIDs = pidsMax(text)
			break
		}
	}
	return l
}

// capabilities are the effective ones of /proc/self/status.
func capabilities(status string) uint64 {
	for line := range strings.Lines(status) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			v, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64) // 0: none
			return v
		}
	}
	return 0
}

func pidsMax(text string) *uint64 {
	v := uint64(netenv.Unlimited)
	if text != "max" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil
		}
		v = n
	}
	return &v
}

// shmSize is what /dev/shm may hold; nil: it is not known. A tmpfs without a
// size may take half of the memory.
func shmSize(machine sysfs.FS) *uint64 {
	mounts, err := machine.Mounts()
	if err != nil {
		return nil
	}
	at := -1
	for i, m := range mounts {
		if m.Dir == "/dev/shm" {
			at = i
		}
	}
	if at < 0 {
		return new(uint64)
	}
	for _, opt := range mounts[at].Options {
		if text, ok := strings.CutPrefix(opt, "size="); ok {
			v, err := sysfs.ParseMountSize(text)
			if err != nil {
				return nil
			}
			return &v
		}
	}
	memory, err := machine.Memory()
	if err != nil || memory["MemTotal"] == 0 {
		return nil
	}
	half := memory["MemTotal"] / 2
	return &half
}
