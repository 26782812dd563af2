package topology

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// GDROptions are NCCL's settings of GPUDirect RDMA, by which a network card
// writes and reads a GPU's memory without a way through the processor's.
type GDROptions struct {
	Off   bool  // NCCL_IB_CUDA_SUPPORT=0
	Level Class // NCCL_NET_GDR_LEVEL: no card that is farther; PXB unless set
	Read  int   // NCCL_NET_GDR_READ: 1, 0, or less than that: by the GPU
	C2C   bool  // NCCL_NET_GDR_C2C: a way over C2C and then PCI is near enough
}

// A GDR says whether GPUDirect RDMA suits a GPU and a card.
type GDR struct {
	GPU      int    `json:"gpu"` // in System.GPUs
	NIC      int    `json:"nic"` // in System.NICs
	Enabled  bool   `json:"enabled"`
	Read     bool   `json:"read"` // for sending, too: the card reads GPU memory
	Distance Class  `json:"distance"`
	Level    Class  `json:"level"`
	Why      string `json:"why,omitempty"` // it is not enabled, where that is not the distance
}

// GDR decides as NCCL does: by the distance over PCI, unless one of the two is
// known to be unable. Whether the kernel lets the card at the GPU's memory
// (nvidia_peermem, DMA-BUF) is not looked at.
func (s *System) GDR(gpu, nic int, o GDROptions) GDR {
	g, n := &s.GPUs[gpu], &s.NICs[nic]
	d := GDR{GPU: gpu, NIC: nic, Distance: s.PCIPath(gpu, len(s.GPUs)+nic).Class, Level: o.Level}
	if o.C2C && g.C2C != nil && n.OnPCI && d.Distance == PHB {
		d.Distance = C2C
	}
	switch {
	case o.Off:
		d.Why = "NCCL_IB_CUDA_SUPPORT=0"
	case !n.RDMA:
		d.Why = "it is no RDMA device"
	case g.GDR != nil && !*g.GDR:
		d.Why = "the GPU cannot"
	case n.GDR != nil && !*n.GDR:
		d.Why = "the HCA cannot"
	}
	d.Enabled = d.Why == "" && d.Distance <= d.Level
	d.Read = d.Enabled && (o.Read > 0 || o.Read < 0 && s.readsWell(gpu))
	return d
}

// readsWell is NCCL's rule for GPUs that cards may read: those from Ampere on,
// and older ones that have NVLinks, or are alone, so that what else goes over
// PCI does not suffer. One that nothing is known of counts as recent.
func (s *System) readsWell(gpu int) bool {
	g := &s.GPUs[gpu]
	return g.SM == 0 || g.SM >= 80 || len(g.NVLinks) > 0 || len(s.GPUs) == 1
}

// String is NCCL's line in the log.
func (d GDR) String() string {
	word, than := "Enabled", "<="
	if !d.Enabled {
		word, than = "Disabled", ">"
	}
	s := fmt.Sprintf("GPU Direct RDMA %s for GPU %d / HCA %d ", word, d.GPU, d.NIC)
	if d.Why != "" {
		return s + "(" + d.Why + ")"
	}
	s += fmt.Sprintf("(distance %d %s %d)", d.Distance, than, d.Level)
	if d.Enabled {
		s += fmt.Sprintf(", read %d", map[bool]int{true: 1}[d.Read])
	}
	return s
}

// GPUAt finds a GPU by its address, -1 if there is none.
func (s *System) GPUAt(id sysfs.BusID) int {
	return slices.IndexFunc(s.GPUs, func(g GPU) bool { return g.BusID == id })
}

// Using is the system with those of its NICs that keep accepts.
func (s *System) Using(keep func(NIC) bool) *System {
	t := *s
	t.NICs = slices.DeleteFunc(slices.Clone(s.NICs), func(n NIC) bool { return !keep(n) })
	return &t
}
