package topology

import (
	"slices"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Overlay replaces the positions of devices by those in a file, as NCCL does with
// NCCL_TOPO_FILE. Clouds ship such files because a virtual machine does not show the PCI
// switches and NUMA nodes of its devices. Devices are matched by address; devices that
// are not in the file stay as they are, devices that are only in the file are not added.
func (s *System) Overlay(file *System) {
	places := map[sysfs.BusID]PCI{}
	links := map[sysfs.BusID][]NVLink{}
	for _, g := range file.GPUs {
		places[g.BusID], links[g.BusID] = g.PCI, g.NVLinks
	}
	for _, n := range file.NICs {
		if n.OnPCI {
			places[n.BusID] = n.PCI
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		if p, ok := places[g.BusID]; ok {
			g.move(p)
			if c, ok := file.numa(p.NUMA); ok && c.CPUs.Len() > 0 {
				g.CPUAffinity, g.NUMAAffinity = c.CPUs, sysfs.NewCPUSet(c.ID)
			}
			if len(g.NVLinks) == 0 {
				g.NVLinks = links[g.BusID]
			}
		}
	}
	for i := range s.NICs {
		if p, ok := places[s.NICs[i].BusID]; ok && s.NICs[i].OnPCI {
			s.NICs[i].move(p)
		}
	}
	s.adopt(file)
}

// move sets a function's position to that in a file.
func (p *PCI) move(to PCI) {
	p.NUMA, p.HostBridge, p.Switches, p.BehindPort = to.NUMA, to.HostBridge, slices.Clone(to.Switches), to.BehindPort
	if to.Link != (sysfs.PCILink{}) {
		p.Link = to.Link
	}
}

// adopt takes over a file's switches and NUMA nodes.
func (s *System) adopt(file *System) {
	for _, w := range file.Switches {
		s.Switches = slices.DeleteFunc(s.Switches, func(p PCI) bool { return p.BusID == w.BusID })
		s.Switches = append(s.Switches, w)
	}
	for _, c := range file.CPUs {
		s.CPUs = slices.DeleteFunc(s.CPUs, func(n NUMA) bool { return n.ID == c.ID })
		s.CPUs = append(s.CPUs, c)
	}
	s.sort()
}
