package membw

import (
	"fmt"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// A locality is the NUMA node next to a GPU.
type locality struct {
	node   int // -1: not known
	cpus   sysfs.CPUSet
	device string // the GPU's PCI device number
}

// localities says where GPUs sit, by address. What the kernel does not tell is
// not there.
func localities(fs sysfs.FS) map[sysfs.BusID]locality {
	devices, err := fs.PCI()
	if err != nil {
		return nil
	}
	nodes, _ := fs.NUMANodes()
	out := map[sysfs.BusID]locality{}
	for _, d := range devices {
		l := locality{node: d.NUMANode, cpus: d.Local, device: fmt.Sprintf("%04x", d.Device)}
		for _, n := range nodes {
			if n.ID == d.NUMANode && len(n.CPUs.List()) > 0 {
				l.cpus = n.CPUs
			}
		}
		out[d.BusID] = l
	}
	return out
}
