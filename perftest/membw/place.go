package membw

import (
	"fmt"

	"golang.org/x/sys/unix"

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

// near runs f while the calling thread, to which the goroutine is locked, may
// use only these processors. Memory that f is the first to write lies next to
// them. Processors that the process may not have change nothing.
func near(cpus sysfs.CPUSet, f func() error) error {
	var before, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return f()
	}
	for _, c := range cpus.List() {
		if before.IsSet(c) {
			want.Set(c)
		}
	}
	if want.Count() == 0 || unix.SchedSetaffinity(0, &want) != nil {
		return f()
	}
	defer unix.SchedSetaffinity(0, &before)
	return f()
}
