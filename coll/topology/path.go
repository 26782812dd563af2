package topology

import (
	"encoding"
	"fmt"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// A Class is NCCL's class of a path; a lower one is preferred.
type Class uint8

// The classes, in NCCL's order and with its numbers.
const (
	LOC Class = iota // the same device
	NVL              // NVLinks, through an NVSwitch or not
	NVB              // NVLinks, relayed by a third GPU
	C2C              // the link of a GPU to its processor
	PIX              // one PCI switch at most
	PXB              // several PCI switches
	P2C              // C2C, and then PCI
	PXN              // NVLink to the GPU that is near the NIC, and then PCI
	PHB              // through the processor's host bridges
	SYS              // between NUMA nodes
	NET              // the network
	DIS              // not connected
)

var classNames = [...]string{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"}

// String is NCCL's name of the class.
func (c Class) String() string {
	if int(c) >= len(classNames) {
		return fmt.Sprintf("Class(%d)", c)
	}
	return classNames[c]
}

// MarshalText is String.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

var _ encoding.TextMarshaler = Class(0)

// A Path is the way between two devices.
type Path struct {
	// Label is nvidia-smi's name: X, NV18, PIX, PXB, PHB, NODE or SYS. It knows
	// of direct ways only.
	Label string  `json:"label"`
	Class Class   `json:"class"` // NCCL's, relays counted
	Links int     `json:"links,omitempty"`
	GBps  float64 `json:"gbps"` // the narrowest place, of a way that is in use alone
}

// Path is the way from device i to device j: GPUs from 0 on, and NICs after
// them.
func (s *System) Path(i, j int) Path {
	if i == j {
		return Path{Label: "X", Class: LOC, GBps: localGBps}
	}
	gpus := len(s.GPUs)
	switch {
	case i < gpus && j < gpus:
		return s.gpuPath(i, j)
	case i < gpus:
		return s.nicPath(i, j)
	case j < gpus:
		return s.nicPath(j, i)
	}
	return s.PCIPath(i, j)
}

// PCIPath is the way over PCI and between processors alone, as in nvidia-smi
// topo -mp.
func (s *System) PCIPath(i, j int) Path {
	if i == j {
		return Path{Label: "X", Class: LOC, GBps: localGBps}
	}
	a, b := s.pci(i), s.pci(j)
	p := Path{Label: "SYS", Class: SYS}
	if a != nil && b != nil {
		p = relate(a, b)
	}
	p.GBps = s.pciGBps(a, b, p.Label)
	for _, d := range []int{i, j} {
		if d >= len(s.GPUs) {
			p.GBps = min(p.GBps, s.NICs[d-len(s.GPUs)].GBps())
		}
	}
	return p
}

// relate names the way over PCI between two functions. NCCL knows no NODE: two
// host bridges of one NUMA node are PHB to it.
func relate(a, b *PCI) Path {
	common := commonSwitches(a, b)
	switch {
	case sameSlot(a, b), common > 0 && common == len(a.Switches) && common == len(b.Switches):
		return Path{Label: "PIX", Class: PIX}
	case common > 0:
		return Path{Label: "PXB", Class: PXB}
	case a.HostBridge == b.HostBridge && a.HostBridge != "", a.NUMA == b.NUMA && (a.HostBridge == "" || b.HostBridge == ""):
		return Path{Label: "PHB", Class: PHB}
	case a.NUMA == b.NUMA:
		return Path{Label: "NODE", Class: PHB}
	}
	return Path{Label: "SYS", Class: SYS}
}

// commonSwitches is how many switches are above both.
func commonSwitches(a, b *PCI) int {
	n := 0
	for n < min(len(a.Switches), len(b.Switches)) && a.Switches[n] == b.Switches[n] {
		n++
	}
	return n
}

// sameSlot reports whether two functions hang on one port: functions of one
// device, or of one bus that is not a root's.
func sameSlot(a, b *PCI) bool {
	if a.BusID.Domain != b.BusID.Domain || a.BusID.Bus != b.BusID.Bus {
		return false
	}
	return a.BusID.Device == b.BusID.Device || a.BehindPort && b.BehindPort
}

// pciGBps is the narrowest place of the way over PCI.
func (s *System) pciGBps(a, b *PCI, label string) float64 {
	least, common := float64(localGBps), 0
	if a != nil && b != nil {
		common = commonSwitches(a, b)
	}
	for _, d := range []*PCI{a, b} {
		if d == nil {
			continue
		}
		least = min(least, PCIeGBps(d.Link))
		for _, id := range d.Switches[min(common, len(d.Switches)):] {
			if w, ok := s.swtch(id); ok {
				least = min(least, PCIeGBps(w.Link))
			}
		}
		if c, ok := s.numa(d.NUMA); ok && label == "SYS" {
			least = min(least, socketGBps(c))
		}
	}
	return least
}

// linksTo counts a GPU's links to another one, and those to switches.
func (g *GPU) linksTo(target sysfs.BusID) (direct, switches int) {
	for _, l := range g.NVLinks {
		switch {
		case l.To == ToSwitch:
			switches += l.Count
		case l.To == ToGPU && l.Target == target:
			direct += l.Count
		}
	}
	return direct, switches
}

// bond is how many NVLinks there are between two GPUs without a relay, direct
// ones, and through NVSwitches as many as the GPU has that has fewer; and what
// they carry together.
func (s *System) bond(i, j int) (links int, gbps float64) {
	a, b := &s.GPUs[i], &s.GPUs[j]
	ab, switchA := a.linksTo(b.BusID)
	ba, switchB := b.linksTo(a.BusID)
	direct := min(ab, ba)
	if direct == 0 { // a file may list a link on one side only
		direct = max(ab, ba)
	}
	links = direct + min(switchA, switchB)
	return links, min(NVLinkGBps(a.SM), NVLinkGBps(b.SM)) * float64(links)
}

// nvlinkPath is the way over NVLinks, without a relay.
func (s *System) nvlinkPath(i, j int) (Path, bool) {
	n, gbps := s.bond(i, j)
	if n == 0 {
		return Path{}, false
	}
	return Path{Label: fmt.Sprintf("NV%d", n), Class: NVL, Links: n, GBps: gbps}, true
}

func (s *System) gpuPath(i, j int) Path {
	if p, ok := s.nvlinkPath(i, j); ok {
		return p
	}
	p := s.PCIPath(i, j)
	if p.Class <= PXB { // a relay costs more than a switch
		return p
	}
	if relay, ok := s.relayed(i, j); ok {
		p.Class, p.GBps = NVB, relay
	}
	return p
}

// relayed is the best way over NVLinks through a third GPU.
func (s *System) relayed(i, j int) (gbps float64, ok bool) {
	for k := range s.GPUs {
		if k == i || k == j {
			continue
		}
		if n, in := s.bond(i, k); n > 0 {
			if n, out := s.bond(k, j); n > 0 {
				gbps, ok = max(gbps, min(in, out)), true
			}
		}
	}
	return gbps, ok
}

// nicPath is the way between a GPU and a NIC: over PCI, over C2C where there
// is such a link, or over the GPU nearest to the NIC.
func (s *System) nicPath(gpu, nic int) Path {
	p := s.PCIPath(gpu, nic)
	if p.Class <= PXB {
		return p
	}
	g, n := &s.GPUs[gpu], &s.NICs[nic-len(s.GPUs)]
	if g.C2C != nil && p.Class == PHB && n.OnPCI {
		p.Class = P2C
		p.GBps = min(g.C2C.GBps(), PCIeGBps(n.Link), n.GBps())
		return p
	}
	for k := range s.GPUs {
		if k == gpu || !n.OnPCI || relate(&s.GPUs[k].PCI, &n.PCI).Class > PXB {
			continue
		}
		if links, gbps := s.bond(gpu, k); links > 0 {
			p.Class = PXN
			p.GBps = min(gbps, s.PCIPath(k, nic).GBps)
			return p
		}
	}
	return p
}

// GBps is the link's bandwidth, all its lanes together.
func (c C2CLink) GBps() float64 { return float64(c.MBps) * float64(c.Count) / 1000 }
