package session

import (
	"cmp"

	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/transport/verbs"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/host/topology"
)

// GDROptions returns the options for GPUDirect RDMA.
func GDROptions(k *knob.Knobs) topology.GDROptions {
	level := map[knob.PathLevel]topology.Class{
		knob.LOC: topology.LOC, knob.NVL: topology.NVL, knob.PIX: topology.PIX,
		knob.PXB: topology.PXB, knob.PHB: topology.PHB, knob.SYS: topology.SYS,
	}[k.IB.GDRLevel]
	return topology.GDROptions{Off: k.IB.CUDASupport == 0, Level: level, Read: k.IB.GDRRead, C2C: k.IB.GDRC2C}
}

// firstPort returns the port that a rank starts with: the one nearest to its GPU, or, without a
// GPU or if the topology does not say what is near, the one at its index.
func (s *Session) firstPort(ports []verbs.PortInfo, index int) int {
	if s.cfg.Device == nil || s.cfg.Bus == nil {
		return index
	}
	const about = debug.Init | debug.Net
	sys, err := readTopology(s.cfg.TopoFile)
	var id sysfs.BusID
	if err == nil {
		var name string
		if name, err = s.cfg.Bus(*s.cfg.Device); err == nil {
			id, err = sysfs.ParseBusID(name)
		}
	}
	if err != nil {
		s.cfg.Log.Infof(about, "NET/IB : which port is near GPU %d is not known: %v", *s.cfg.Device, err)
		return index
	}
	first, why := nearestPort(sys, id, ports, GDROptions(s.cfg.Knobs))
	s.cfg.Log.Infof(about, "NET/IB : %s", why)
	if first < 0 {
		return index
	}
	return first
}

// nearestPort returns which of the ports in use is nearest to a GPU, -1 if that is not known, and
// a message for the log.
func nearestPort(sys *topology.System, gpu sysfs.BusID, ports []verbs.PortInfo, opt topology.GDROptions) (first int, why string) {
	at := func(n topology.NIC) int {
		for i, p := range ports {
			if n.RDMA && n.Name == p.Device && cmp.Or(n.Port, 1) == p.Port {
				return i
			}
		}
		return -1
	}
	sys = sys.Using(func(n topology.NIC) bool { return at(n) >= 0 })
	g := sys.GPUAt(gpu)
	if g < 0 || len(sys.NICs) == 0 {
		return -1, "the topology lacks GPU " + gpu.String() + " or the ports: which port is near is not known"
	}
	nic := sys.Rails()[g]
	if nic < 0 {
		return -1, "no port near GPU " + gpu.String() + " is up"
	}
	first = at(sys.NICs[nic])
	d := sys.GDR(g, nic, opt)
	d.NIC = first
	return first, d.String() + " " + sys.Label(nic) + "; not used: data are staged in host memory"
}
