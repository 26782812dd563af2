package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// An NVML returns what NVIDIA's driver knows about its GPUs: [nvml.Library], or a test.
type NVML interface {
	// Places lists the GPUs in the driver's order.
	Places() ([]nvml.Place, error)
}

// Sources are where a System is read from.
type Sources struct {
	FS   sysfs.FS
	NVML NVML // nil: GPUs are found on PCI, and their NVLinks are not known
}

// Read gathers a machine's topology. Parts that do not exist (no PCI, no RDMA devices)
// are empty; parts that could not be read are in Notes. It fails only if not even the
// processors are known.
func Read(src Sources) (*System, error) {
	r := &reader{fs: src.FS, sys: &System{}, devices: map[sysfs.BusID]sysfs.PCIDevice{}}
	if err := r.cpus(); err != nil {
		return nil, err
	}
	if host, err := r.fs.Host(); err == nil {
		r.sys.Host = host.Name
	}
	r.pci()
	r.gpus()
	r.rdma()
	r.interfaces()
	if src.NVML != nil {
		r.nvml(src.NVML)
	}
	r.sys.sort()
	return r.sys, nil
}

type reader struct {
	fs      sysfs.FS
	sys     *System
	list    []sysfs.PCIDevice
	devices map[sysfs.BusID]sysfs.PCIDevice
}

// note records errors for people. What does not exist needs no note.
func (r *reader) note(what string, errs ...error) {
	for _, err := range errs {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.sys.Notes = append(r.sys.Notes, what+": "+err.Error())
		}
	}
}

func (r *reader) cpus() error {
	cpus, err := r.fs.CPUs()
	if err != nil {
		return fmt.Errorf("reading the processors (is /sys mounted?): %w", err)
	}
	r.note("processors", cpus.Problems...)
	nodes, err := r.fs.NUMANodes()
	r.note("NUMA nodes", err)
	if len(nodes) == 0 { // a kernel without NUMA
		nodes = []sysfs.NUMANode{{CPUs: cpus.Online}}
	}
	for _, n := range nodes {
		r.note("NUMA nodes", n.Problems...)
		r.sys.CPUs = append(r.sys.CPUs, NUMA{
			ID: n.ID, CPUs: n.CPUs, Distances: n.Distances,
			Arch: archOf(cpus.Model), Vendor: cpus.Model.Vendor, Family: cpus.Model.Family, Model: cpus.Model.Model,
		})
	}
	return nil
}

// archOf returns NCCL's name of the architecture. It uses the processor's model, since
// the tree may be another machine's.
func archOf(m sysfs.CPUModel) string {
	switch {
	case strings.HasPrefix(m.Vendor, "0x"):
		return "arm64"
	case m.Vendor != "":
		return "x86_64"
	}
	return ""
}

func (r *reader) pci() {
	list, err := r.fs.PCI()
	r.note("PCI devices", err)
	r.list = list
	for _, d := range list {
		r.devices[d.BusID] = d
	}
}

// place returns a function's position, and adds missing records of the switches above it.
func (r *reader) place(d sysfs.PCIDevice) PCI {
	p := r.function(d)
	p.NUMA, p.HostBridge, p.BehindPort = r.node(d), d.HostBridge, len(d.Bridges) > 0
	for _, id := range switchesAbove(d.Bridges) {
		if _, ok := r.sys.swtch(id); !ok {
			w := r.function(r.devices[id])
			w.BusID = id // it may be missing from the list
			w.NUMA, w.HostBridge, w.Switches, w.BehindPort = p.NUMA, d.HostBridge, slices.Clone(p.Switches), true
			r.sys.Switches = append(r.sys.Switches, w)
		}
		p.Switches = append(p.Switches, id)
	}
	return p
}

// function returns a PCI function's own attributes.
func (r *reader) function(d sysfs.PCIDevice) PCI {
	return PCI{
		BusID: d.BusID, Class: d.Class, Vendor: d.Vendor, Device: d.Device, SubVendor: d.SubVendor, SubDevice: d.SubDevice, Link: r.link(d),
	}
}

// switchesAbove selects the switches from the bridges above a device. A switch is two
// bridges: its upstream port, and the downstream port below it. The outermost bridge is
// the root port. So, from the device up, every second bridge is an upstream port, which
// identifies the switch (as in NCCL).
func switchesAbove(bridges []sysfs.BusID) []sysfs.BusID {
	var out []sysfs.BusID
	for i := len(bridges) - 2; i >= 0; i -= 2 {
		out = append(out, bridges[i])
	}
	slices.Reverse(out)
	return out
}

// link returns the best that both ends of a device's link support.
func (r *reader) link(d sysfs.PCIDevice) sysfs.PCILink {
	l := d.MaxLink
	if len(d.Bridges) == 0 {
		return l
	}
	port := r.devices[d.Bridges[len(d.Bridges)-1]].MaxLink
	if port.GTs > 0 && (l.GTs == 0 || port.GTs < l.GTs) {
		l.GTs = port.GTs
	}
	if port.Width > 0 && (l.Width == 0 || port.Width < l.Width) {
		l.Width = port.Width
	}
	return l
}

// node returns the NUMA node of a device: the one that the firmware reports, or else the
// only one with processors near the device, or -1.
func (r *reader) node(d sysfs.PCIDevice) int {
	if d.NUMANode >= 0 {
		return d.NUMANode
	}
	near := r.nodesOf(d.Local)
	if len(near) != 1 {
		return -1
	}
	return near[0]
}

// nodesOf lists the NUMA nodes that contain some of the processors.
func (r *reader) nodesOf(cpus sysfs.CPUSet) []int {
	var out []int
	for _, c := range r.sys.CPUs {
		if c.CPUs.Intersect(cpus).Len() > 0 {
			out = append(out, c.ID)
		}
	}
	return out
}

// gpus finds the GPUs on PCI, in the order of their addresses, in which the driver counts
// them.
func (r *reader) gpus() {
	for _, d := range r.list {
		if !d.IsGPU() {
			continue
		}
		r.note("GPU "+d.BusID.String(), d.Problems...)
		g := GPU{PCI: r.place(d), Rank: -1, CPUAffinity: d.Local}
		if c, ok := r.sys.numa(g.NUMA); ok {
			if g.CPUAffinity.Len() == 0 {
				g.CPUAffinity = c.CPUs
			}
			g.NUMAAffinity = sysfs.NewCPUSet(c.ID)
		} else {
			g.NUMAAffinity = sysfs.NewCPUSet(r.nodesOf(d.Local)...)
		}
		r.sys.GPUs = append(r.sys.GPUs, g)
	}
	for i := range r.sys.GPUs {
		r.sys.GPUs[i].Index = i
	}
}

// rdma lists the ports of the RDMA devices.
func (r *reader) rdma() {
	list, err := r.fs.RDMADevices()
	r.note("RDMA devices", err)
	for _, d := range list {
		r.note(d.Name, d.Problems...)
		for _, p := range d.Ports {
			n := NIC{
				Name: d.Name, RDMA: true, Port: p.Number, Mbit: int(p.Rate.Gbit * 1000), LinkLayer: p.LinkLayer, State: p.State,
				GUID: guid(d.NodeGUID),
			}
			r.add(n, d.BusID, d.OnPCI)
		}
	}
}

// guid converts the kernel's form 0c42:a103:0016:93f8 to 0x and digits.
func guid(s string) string {
	if s == "" {
		return ""
	}
	return "0x" + strings.ReplaceAll(s, ":", "")
}

// interfaces lists the network interfaces that have a device and do not belong to an RDMA
// device.
func (r *reader) interfaces() {
	list, err := r.fs.Interfaces()
	r.note("network interfaces", err)
	for _, i := range list {
		r.note(i.Name, i.Problems...)
		rdma := slices.ContainsFunc(r.sys.NICs, func(n NIC) bool { return n.RDMA && n.OnPCI && i.OnPCI && n.BusID == i.BusID })
		if i.Virtual || rdma {
			continue
		}
		r.add(NIC{Name: i.Name, Mbit: i.Mbit, LinkLayer: "Ethernet", State: i.OperState}, i.BusID, i.OnPCI)
	}
}

func (r *reader) add(n NIC, id sysfs.BusID, onPCI bool) {
	if d, ok := r.devices[id]; onPCI && ok {
		n.PCI, n.OnPCI = r.place(d), true
	} else {
		n.NUMA = -1
	}
	r.sys.NICs = append(r.sys.NICs, n)
}

// nvml adds what the driver knows. GPUs that the driver does not know are removed
// (another driver has them, or none); a GPU that PCI does not show is added without a
// position, as in a container that hides /sys.
func (r *reader) nvml(lib NVML) {
	list, err := lib.Places()
	if err != nil {
		r.sys.Notes = append(r.sys.Notes, "GPUs: "+err.Error())
		return
	}
	found := r.sys.GPUs
	r.sys.GPUs = nil
	for i, d := range list {
		g := GPU{PCI: PCI{BusID: d.BusID, NUMA: -1}, Rank: -1}
		if k := slices.IndexFunc(found, func(g GPU) bool { return g.BusID == d.BusID }); k >= 0 {
			g = found[k]
		}
		g.Index, g.Name, g.UUID, g.SM, g.MemoryNode = i, d.Name, d.UUID, d.SM, d.MemoryNode
		if d.CPUAffinity.Len() > 0 {
			g.CPUAffinity = d.CPUAffinity
		}
		if d.NUMAAffinity.Len() > 0 {
			g.NUMAAffinity = d.NUMAAffinity
		}
		g.NVLinks = bond(d.Links)
		r.sys.GPUs = append(r.sys.GPUs, g)
	}
}

// bond counts the links to each far end. A far end that the driver does not identify is a
// switch: GPUs have an address that the driver shows.
func bond(links []nvml.Link) []NVLink {
	var out []NVLink
	for _, l := range links {
		to := cmp.Or(map[string]LinkEnd{"GPU": ToGPU, "CPU": ToCPU}[l.To], ToSwitch)
		i := slices.IndexFunc(out, func(b NVLink) bool { return b.Target == l.Remote && b.To == to })
		if i < 0 {
			i, out = len(out), append(out, NVLink{Target: l.Remote, To: to})
		}
		out[i].Count++
	}
	slices.SortFunc(out, func(a, b NVLink) int { return cmp.Or(a.Target.Compare(b.Target), cmp.Compare(a.To, b.To)) })
	return out
}
