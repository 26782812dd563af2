package topology

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// WriteXML writes NCCL's XML, which NCCL_TOPO_FILE reads. It contains less than the JSON:
// no names and UUIDs of GPUs, and no affinities except the NUMA node's. Unknown values
// are left out, so that NCCL determines them itself: it believes a file that says
// speed="0". A pci element's class and link must be present, known or not (tried with
// NCCL 2.28).
func (s *System) WriteXML(w io.Writer) error {
	x := &xmlWriter{sys: s}
	x.open("system", "version", "1")
	for i, c := range s.nodes() {
		x.cpu(c, i == 0)
	}
	x.close("system")
	_, err := io.WriteString(w, x.b.String())
	return err
}

// nodes returns the NUMA nodes, and further ones for devices that are on none of them.
func (s *System) nodes() []NUMA {
	nodes := slices.Clone(s.CPUs)
	for i := range s.Devices() {
		if p := s.pci(i); p != nil && !slices.ContainsFunc(nodes, func(c NUMA) bool { return c.ID == p.NUMA }) {
			nodes = append(nodes, NUMA{ID: p.NUMA})
		}
	}
	return nodes
}

type xmlWriter struct {
	sys    *System
	b      strings.Builder
	indent int
}

// tag writes an element's start. Attributes are names and values; attributes with an
// empty value are left out, except those that NCCL requires.
func (x *xmlWriter) tag(end, name string, attrs ...string) {
	x.b.WriteString(strings.Repeat("  ", x.indent) + "<" + name)
	for i := 0; i < len(attrs); i += 2 {
		if attrs[i+1] == "" && attrs[i] != "link_speed" {
			continue
		}
		x.b.WriteString(" " + attrs[i] + `="`)
		xml.EscapeText(&x.b, []byte(attrs[i+1]))
		x.b.WriteByte('"')
	}
	x.b.WriteString(end + "\n")
}

func (x *xmlWriter) open(name string, attrs ...string) {
	x.tag(">", name, attrs...)
	x.indent++
}

func (x *xmlWriter) close(name string) {
	x.indent--
	x.b.WriteString(strings.Repeat("  ", x.indent) + "</" + name + ">\n")
}

func (x *xmlWriter) empty(name string, attrs ...string) { x.tag("/>", name, attrs...) }

// unless0 returns a number's text, or "" for 0.
func unless0(v int) string {
	if v == 0 {
		return ""
	}
	return strconv.Itoa(v)
}

func bit(b *bool) string {
	switch {
	case b == nil:
		return ""
	case *b:
		return "1"
	}
	return "0"
}

func (x *xmlWriter) cpu(c NUMA, first bool) {
	affinity := ""
	if c.CPUs.Len() > 0 {
		affinity = c.CPUs.Mask()
	}
	x.open("cpu", "host_hash", x.sys.HostHash, "numaid", strconv.Itoa(c.ID), "affinity", affinity, "arch", c.Arch,
		"vendor", c.Vendor, "familyid", unless0(c.Family), "modelid", unless0(c.Model))
	x.below(c.ID, nil)
	for i, n := range x.sys.NICs {
		known := slices.ContainsFunc(x.sys.CPUs, func(c NUMA) bool { return c.ID == n.NUMA })
		if !n.OnPCI && (n.NUMA == c.ID || first && !known) { // NCCL puts NICs that are not on PCI on the first node
			x.open("nic")
			x.net(i)
			x.close("nic")
		}
	}
	x.close("cpu")
}

// below writes the devices below a chain of switches on a NUMA node.
func (x *xmlWriter) below(numa int, above []sysfs.BusID) {
	here := func(p PCI) bool { return p.NUMA == numa && slices.Equal(p.Switches, above) }
	for _, w := range x.sys.Switches {
		if here(w) {
			x.open("pci", pciAttrs(w)...)
			x.below(numa, append(slices.Clone(above), w.BusID))
			x.close("pci")
		}
	}
	for _, g := range x.sys.GPUs {
		if here(g.PCI) {
			x.gpu(g)
		}
	}
	done := map[sysfs.BusID]bool{}
	for _, n := range x.sys.NICs {
		if n.OnPCI && here(n.PCI) && !done[n.BusID] {
			done[n.BusID] = true
			x.card(n.PCI)
		}
	}
}

func pciAttrs(p PCI) []string {
	hex := func(v uint16) string {
		if v == 0 {
			return ""
		}
		return fmt.Sprintf("0x%04x", v)
	}
	speed := ""
	if p.Link.GTs > 0 {
		speed = strconv.FormatFloat(p.Link.GTs, 'f', -1, 64)
		if !strings.Contains(speed, ".") {
			speed += ".0"
		}
		speed += " GT/s PCIe"
	}
	attrs := []string{
		"busid", p.BusID.String(), "class", fmt.Sprintf("0x%06x", p.Class), "vendor", hex(p.Vendor),
		"device", hex(p.Device), "subsystem_vendor", hex(p.SubVendor),
		"subsystem_device", hex(p.SubDevice), "link_speed", speed, "link_width", strconv.Itoa(p.Link.Width),
	}
	if len(p.Switches) == 0 {
		attrs = append(attrs, "host_bridge", p.HostBridge)
	}
	return attrs
}

func (x *xmlWriter) gpu(g GPU) {
	if g.Index < 0 && g.Rank < 0 && g.SM == 0 && g.GDR == nil && len(g.NVLinks) == 0 && g.C2C == nil && isGPU(g.Class) {
		x.empty("pci", pciAttrs(g.PCI)...)
		return
	}
	x.open("pci", pciAttrs(g.PCI)...)
	rank := ""
	if g.Rank >= 0 {
		rank = strconv.Itoa(g.Rank)
	}
	x.open("gpu", "dev", strconv.Itoa(g.Index), "sm", unless0(g.SM), "rank", rank, "gdr", bit(g.GDR))
	class := map[LinkEnd]string{ToGPU: "0x030200", ToSwitch: "0x068000", ToCPU: "0x068001"}
	for _, l := range g.NVLinks {
		x.empty("nvlink", "target", l.Target.String(), "count", strconv.Itoa(l.Count), "tclass", class[l.To])
	}
	if g.C2C != nil {
		x.empty("c2c", "bw", strconv.Itoa(g.C2C.MBps), "count", strconv.Itoa(g.C2C.Count))
	}
	x.close("gpu")
	x.close("pci")
}

// card writes a function with its NICs.
func (x *xmlWriter) card(p PCI) {
	var ports []int
	for i, n := range x.sys.NICs {
		if n.OnPCI && n.BusID == p.BusID && n.Name != "" {
			ports = append(ports, i)
		}
	}
	if len(ports) == 0 {
		x.empty("pci", pciAttrs(p)...)
		return
	}
	x.open("pci", pciAttrs(p)...)
	x.open("nic")
	for _, i := range ports {
		x.net(i)
	}
	x.close("nic")
	x.close("pci")
}

func (x *xmlWriter) net(i int) {
	n := x.sys.NICs[i]
	latency := ""
	if n.LatencyUs > 0 {
		latency = strconv.FormatFloat(n.LatencyUs, 'f', -1, 64)
	}
	x.empty("net", "name", n.Name, "dev", strconv.Itoa(i), "latency", latency, "speed", unless0(n.Mbit),
		"port", unless0(n.Port), "guid", n.GUID, "maxconn", unless0(n.MaxConn), "gdr", bit(n.GDR))
}
