package topology

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// NCCL's XML, as NCCL_TOPO_DUMP_FILE writes it and NCCL_TOPO_FILE reads it:
//
//	system      version
//	  cpu       numaid affinity arch vendor familyid modelid host_hash
//	    pci     busid class vendor device subsystem_vendor subsystem_device link_speed link_width
//	      pci   …
//	      gpu   dev sm rank gdr
//	        nvlink  target count tclass
//	        c2c     bw count
//	      nic
//	        net     name dev speed port latency guid maxconn gdr
//	    nic     (a card that is not on PCI)
//
// A pci element is a switch, identified by its upstream port, or a device. Numbers are
// decimal or 0x. Unknown attributes and elements are ignored, as in NCCL. One attribute
// is an addition of this package: host_bridge on the outermost pci elements distinguishes
// NODE from PHB, which NCCL does not.

// readXML reads NCCL's XML: of one host, the n-th from 1, where the file holds several, as dumps of an NVLink domain
// do. It rejects document types, entities other than XML's own, and files over 8 MiB.
func readXML(r io.Reader, host int) (*System, error) {
	root, err := parseElements(r)
	if err != nil {
		return nil, err
	}
	x := &xmlReader{sys: &System{}, seen: map[sysfs.BusID]bool{}}
	x.system(root, host)
	if x.err != nil {
		return nil, x.err
	}
	slices.SortStableFunc(x.nics, func(a, b devNIC) int { return cmp.Compare(a.dev, b.dev) })
	for _, n := range x.nics {
		x.sys.NICs = append(x.sys.NICs, n.NIC)
	}
	if err := x.sys.limit(); err != nil {
		return nil, err
	}
	x.finish()
	return x.sys, nil
}

// An xmlReader converts elements to a System. It records the first error.
type xmlReader struct {
	sys  *System
	seen map[sysfs.BusID]bool
	nics []devNIC
	err  error
}

// A devNIC is a NIC with its dev attribute.
type devNIC struct {
	NIC
	dev int
}

func (x *xmlReader) fail(e *element, format string, a ...any) {
	if x.err == nil {
		x.err = &syntaxError{e.line, fmt.Sprintf("<%s>: ", e.name) + fmt.Sprintf(format, a...)}
	}
}

// number reads a decimal or 0x attribute between lo and hi; if it is absent or empty, the
// result is without.
func (x *xmlReader) number(e *element, name string, without, lo, hi int64) int64 {
	s := e.attr[name]
	if s == "" {
		return without
	}
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil || v < lo || v > hi {
		x.fail(e, "%s=%.40q is not a number from %d to %d", name, s, lo, hi)
		return without
	}
	return v
}

// flag reads 0 or 1; nil means that the attribute is absent.
func (x *xmlReader) flag(e *element, name string) *bool {
	if e.attr[name] == "" {
		return nil
	}
	v := x.number(e, name, 0, 0, 1) == 1
	return &v
}

func (x *xmlReader) system(root *element, host int) {
	var hosts []string
	for _, e := range root.sub {
		if h := e.attr["host_hash"]; e.name == "cpu" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	switch n := len(hosts); {
	case host > max(n, 1):
		x.fail(root, "it holds %d hosts, and no host %d", n, host)
		return
	case n > 1:
		x.sys.Notes = append(x.sys.Notes, fmt.Sprintf("the file holds %d hosts; this is host %d (host_hash %.40q): --host N shows another", n, max(host, 1), hosts[max(host, 1)-1]))
		hosts = hosts[max(host, 1)-1:]
	}
	for _, e := range root.sub {
		if e.name == "cpu" && e.attr["host_hash"] == hosts[0] {
			x.cpu(e)
		}
	}
	if len(x.sys.CPUs) == 0 {
		x.fail(root, "there is no <cpu> in it")
	}
}

func (x *xmlReader) cpu(e *element) {
	c := NUMA{
		ID: int(x.number(e, "numaid", -1, -1, 16383)), Arch: e.attr["arch"], Vendor: e.attr["vendor"],
		Family: int(x.number(e, "familyid", 0, 0, 1<<20)), Model: int(x.number(e, "modelid", 0, 0, 1<<20)),
	}
	if mask := e.attr["affinity"]; mask != "" {
		set, err := sysfs.ParseCPUMask(mask)
		if err != nil {
			x.fail(e, "affinity: %v", err)
		}
		c.CPUs = set
	}
	if h := e.attr["host_hash"]; h != "" {
		x.sys.HostHash = h
	}
	if _, ok := x.sys.numa(c.ID); ok {
		x.fail(e, "numaid %d is there twice", c.ID)
	}
	x.sys.CPUs = append(x.sys.CPUs, c)
	for _, sub := range e.sub {
		switch sub.name {
		case "pci":
			x.pci(sub, PCI{NUMA: c.ID, HostBridge: sub.attr["host_bridge"]})
		case "nic":
			x.nic(sub, PCI{NUMA: c.ID}, false)
		}
	}
}

// pci reads a pci element; place describes what is above it.
func (x *xmlReader) pci(e *element, place PCI) {
	p := x.function(e, place)
	if x.err != nil {
		return
	}
	again := x.seen[p.BusID]
	x.seen[p.BusID] = true
	kinds := map[string]int{}
	for _, sub := range e.sub {
		kinds[sub.name]++
	}
	switch {
	case again && kinds["pci"] == 0:
		x.sys.Notes = append(x.sys.Notes, fmt.Sprintf("line %d: <pci>: busid %v is there twice; the second is left out", e.line, p.BusID))
	case min(kinds["gpu"], 1)+min(kinds["nic"], 1)+min(kinds["pci"], 1) > 1:
		x.fail(e, "busid %v holds a <gpu>, a <nic> and other <pci> at once; it is one of them", p.BusID)
	case kinds["pci"] > 0 || len(kinds) == 0 && p.Class>>8 == sysfs.ClassBridgePCI:
		if again { // dumps of RCCL have such
			x.sys.Notes = append(x.sys.Notes, fmt.Sprintf("line %d: <pci>: busid %v is there twice; what is below both is taken to be below one switch", e.line, p.BusID))
		} else {
			x.sys.Switches = append(x.sys.Switches, p)
		}
		inner := PCI{NUMA: p.NUMA, HostBridge: p.HostBridge, Switches: append(slices.Clone(p.Switches), p.BusID)}
		for _, sub := range e.sub {
			if sub.name == "pci" {
				x.pci(sub, inner)
			}
		}
	case kinds["gpu"] > 0:
		if parts := kinds["gpu"]; parts > 1 {
			x.sys.Notes = append(x.sys.Notes, fmt.Sprintf("the GPU %v is divided into %d parts (MLOPart), which NCCL takes for so many GPUs: they share its links, and it is shown as one", p.BusID, parts))
		}
		x.gpu(e.sub[slices.IndexFunc(e.sub, func(s *element) bool { return s.name == "gpu" })], p)
	case kinds["nic"] > 0:
		for _, sub := range e.sub {
			if sub.name == "nic" {
				x.nic(sub, p, true)
			}
		}
	case isGPU(p.Class): // a hand-written file gives the devices' positions, not their details
		x.sys.GPUs = append(x.sys.GPUs, GPU{PCI: p, Index: -1, Rank: -1})
	case p.Class>>16 == 2:
		x.nics = append(x.nics, devNIC{NIC{PCI: p, OnPCI: true, RDMA: p.Class>>8 == sysfs.ClassInfiniBand}, 1 << 30})
	}
}

// isGPU reports whether a PCI class is a GPU's.
func isGPU(class uint32) bool {
	return class>>8 == sysfs.ClassDisplay3D || class>>8 == sysfs.ClassDisplayVGA
}

// function reads the attributes of a pci element.
func (x *xmlReader) function(e *element, p PCI) PCI {
	id, err := sysfs.ParseBusID(e.attr["busid"])
	if err != nil {
		x.fail(e, "busid: %v", err)
	}
	speed, err := sysfs.ParseLinkSpeed(e.attr["link_speed"])
	if err != nil {
		x.fail(e, "link_speed: %v", err)
	}
	p.BusID = id
	p.Class = uint32(x.number(e, "class", 0, 0, 1<<24-1))
	p.Vendor = uint16(x.number(e, "vendor", 0, 0, 1<<16-1))
	p.Device = uint16(x.number(e, "device", 0, 0, 1<<16-1))
	p.SubVendor = uint16(x.number(e, "subsystem_vendor", 0, 0, 1<<16-1))
	p.SubDevice = uint16(x.number(e, "subsystem_device", 0, 0, 1<<16-1))
	p.Link = sysfs.PCILink{GTs: speed, Width: int(x.number(e, "link_width", 0, 0, 64))}
	return p
}

func (x *xmlReader) gpu(e *element, p PCI) {
	g := GPU{
		PCI: p, Index: int(x.number(e, "dev", -1, -1, 4095)), SM: int(x.number(e, "sm", 0, 0, 999)),
		Rank: int(x.number(e, "rank", -1, -1, 1<<30)), GDR: x.flag(e, "gdr"),
	}
	for _, sub := range e.sub {
		switch sub.name {
		case "nvlink":
			g.NVLinks = append(g.NVLinks, x.nvlink(sub))
		case "c2c":
			g.C2C = &C2CLink{MBps: int(x.number(sub, "bw", 0, 0, 1<<30)), Count: int(x.number(sub, "count", 1, 1, 1024))}
		}
	}
	x.sys.GPUs = append(x.sys.GPUs, g)
}

func (x *xmlReader) nvlink(e *element) NVLink {
	id, err := sysfs.ParseBusID(e.attr["target"])
	if err != nil {
		x.fail(e, "target: %v", err)
	}
	l := NVLink{Target: id, Count: int(x.number(e, "count", 1, 1, 1024))}
	switch class := x.number(e, "tclass", 0, 0, 1<<24-1); {
	case class>>16 == 3:
		l.To = ToGPU
	case class == 0x068001:
		l.To = ToCPU
	case class>>8 == sysfs.ClassBridge:
		l.To = ToSwitch
	case class != 0:
		x.fail(e, "tclass=%q is neither a GPU's, an NVSwitch's nor a processor's", e.attr["tclass"])
	}
	return l
}

func (x *xmlReader) nic(e *element, p PCI, onPCI bool) {
	for _, net := range e.sub {
		if net.name != "net" {
			continue
		}
		n := NIC{
			PCI: p, OnPCI: onPCI, Name: net.attr["name"], Port: int(x.number(net, "port", 0, 0, 255)),
			Mbit: int(x.number(net, "speed", 0, 0, 1<<40)), MaxConn: int(x.number(net, "maxconn", 0, 0, 1<<40)),
			GDR: x.flag(net, "gdr"),
		}
		if n.Name == "" {
			x.fail(net, "it has no name")
		}
		if s := net.attr["guid"]; s != "" {
			v, err := strconv.ParseUint(s, 0, 64)
			if err != nil {
				x.fail(net, "guid=%.40q is no 64-bit number", s)
			}
			if v != 0 {
				n.GUID = fmt.Sprintf("%#x", v)
			}
		}
		if s := net.attr["latency"]; s != "" {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || !(v >= 0 && v < 1e9) {
				x.fail(net, "latency=%.40q is not a number of microseconds", s)
			}
			n.LatencyUs = v
		}
		// In NCCL's files sockets have port 0 and GUID 0; RDMA devices have a port and a
		// GUID other than 0.
		n.RDMA = n.Port > 0 || n.GUID != ""
		x.nics = append(x.nics, devNIC{n, int(x.number(net, "dev", 1<<20, -1, 4095))})
	}
}

// finish sorts the devices and fills in derived fields.
func (x *xmlReader) finish() {
	s := x.sys
	s.sort()
	slices.SortFunc(s.GPUs, func(a, b GPU) int {
		return cmp.Or(cmp.Compare(uint(a.Index), uint(b.Index)), a.BusID.Compare(b.BusID)) // -1 comes last
	})
	for i := range s.GPUs {
		g := &s.GPUs[i]
		c, _ := s.numa(g.NUMA)
		g.CPUAffinity = c.CPUs
		if g.NUMA >= 0 {
			g.NUMAAffinity = sysfs.NewCPUSet(g.NUMA)
		}
		for k := range g.NVLinks {
			switch l := &g.NVLinks[k]; {
			case l.To != "":
			case s.GPUAt(l.Target) >= 0:
				l.To = ToGPU
			default:
				l.To = ToSwitch
			}
		}
	}
}
