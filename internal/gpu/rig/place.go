package rig

import (
	"fmt"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A Place is the position of a GPU in the machine.
type Place struct {
	PCIDevice string       // four hex digits; "": not known
	Node      int          // the closest NUMA node; -1: not known
	CPUs      sysfs.CPUSet // closest to it; none: not known
}

// places returns the places of PCI devices, as far as the kernel reports them.
func places(f sysfs.FS) map[sysfs.BusID]Place {
	devices, err := f.PCI()
	if err != nil {
		return nil
	}
	nodes, _ := f.NUMANodes()
	out := map[sysfs.BusID]Place{}
	for _, d := range devices {
		p := Place{fmt.Sprintf("%04x", d.Device), d.NUMANode, d.Local}
		for _, n := range nodes {
			if n.ID == d.NUMANode && len(n.CPUs.List()) > 0 {
				p.CPUs = n.CPUs
			}
		}
		out[d.BusID] = p
	}
	return out
}
