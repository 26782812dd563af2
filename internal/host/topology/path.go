package topology

import (
	"encoding"
	"fmt"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A Class is NCCL's class of a path; a lower one is preferred.
type Class uint8

// The classes, in NCCL's order and with its numbers.
const (
	LOC Class = iota // the same device
	NVL              // NVLinks, through an NVSwitch or not
	NVB              // NVLinks, relayed by a third GPU
	C2C              // the link of a GPU to its processor
	PIX              // at most one PCI switch
	PXB              // several PCI switches
	P2C              // C2C, and then PCI
	PXN              // NVLink to the GPU that is near the NIC, and then PCI
	PHB              // through the processor's host bridges
	SYS              // between NUMA nodes
	NET              // the network
	DIS              // not connected
)

var classNames = [...]string{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"}

// String returns NCCL's name of the class.
func (c Class) String() string {
	if int(c) >= len(classNames) {
		return fmt.Sprintf("Class(%d)", c)
	}
	return classNames[c]
}

// MarshalText returns String's text.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

var _ encoding.TextMarshaler = Class(0)

// A Path describes the connection between two devices.
type Path struct {
	// Label is nvidia-smi's name: X, NV18, PIX, PXB, PHB, NODE or SYS. It covers direct
	// paths only.
	Label string  `json:"label"`
	Class Class   `json:"class"` // NCCL's, with relays
	Links int     `json:"links,omitempty"`
	GBps  float64 `json:"gbps"` // of the narrowest section, if nothing else uses the path
}

// Path returns the path from device i to device j: GPUs from 0 on, then NICs.
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

// PCIPath returns the path over PCI and between processors only, as in nvidia-smi topo
// -mp.
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

// relate classifies the PCI path between two functions. NCCL has no NODE: it classifies
// two host bridges of one NUMA node as PHB.
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

// commonSwitches returns the number of switches above both.
func commonSwitches(a, b *PCI) int {
	n := 0
	for n < min(len(a.Switches), len(b.Switches)) && a.Switches[n] == b.Switches[n] {
		n++
	}
	return n
}

// sameSlot reports whether two functions are behind the same port: functions of one
// device, or of one bus that is not a root bus.
func sameSlot(a, b *PCI) bool {
	if a.BusID.Domain != b.BusID.Domain || a.BusID.Bus != b.BusID.Bus {
		return false
	}
	return a.BusID.Device == b.BusID.Device || a.BehindPort && b.BehindPort
}

// pciGBps returns the bandwidth of the narrowest section of the PCI path.
func (s *System) pciGBps(a, b *PCI, label string) float64 {
	least, common := float64(localGBps), 0
	if a != nil && b != nil {
		common = commonSwitches(a, b)
	}
	for _, d := range []*PCI{a, b} {
		if d == nil {
			continue
		}
		least = min(least, pcieBandwidth(d.Link))
		for _, id := range d.Switches[min(common, len(d.Switches)):] {
			if w, ok := s.swtch(id); ok {
				least = min(least, pcieBandwidth(w.Link))
			}
		}
		if c, ok := s.numa(d.NUMA); ok && label == "SYS" {
			least = min(least, socketGBps(c))
		}
	}
	return least
}

// linksTo counts a GPU's links to another GPU, and those to switches.
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

// bond returns the number of NVLinks between two GPUs without a relay, and their total
// bandwidth. It counts direct links, and of the links to NVSwitches the smaller of the
// two GPUs' numbers.
func (s *System) bond(i, j int) (links int, gbps float64) {
	a, b := &s.GPUs[i], &s.GPUs[j]
	ab, switchA := a.linksTo(b.BusID)
	ba, switchB := b.linksTo(a.BusID)
	direct := min(ab, ba)
	if direct == 0 { // a file may list a link on one side only
		direct = max(ab, ba)
	}
	links = direct + min(switchA, switchB)
	return links, min(nvlinkBandwidth(a.SM), nvlinkBandwidth(b.SM)) * float64(links)
}

// nvlinkPath returns the path over NVLinks, without a relay.
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

// relayed returns the bandwidth of the best path over NVLinks through a third GPU.
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

// nicPath returns the path between a GPU and a NIC: over PCI, over C2C where there is
// such a link, or through a GPU near the NIC.
func (s *System) nicPath(gpu, nic int) Path {
	p := s.PCIPath(gpu, nic)
	if p.Class <= PXB {
		return p
	}
	g, n := &s.GPUs[gpu], &s.NICs[nic-len(s.GPUs)]
	if g.C2C != nil && p.Class == PHB && n.OnPCI {
		p.Class = P2C
		p.GBps = min(g.C2C.GBps(), pcieBandwidth(n.Link), n.GBps())
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

// GBps returns the bandwidth of all the links together.
func (c C2CLink) GBps() float64 { return float64(c.MBps) * float64(c.Count) / 1000 }
