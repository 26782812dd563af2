package topology

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// GDROptions are NCCL's settings of GPUDirect RDMA, with which a network card writes and
// reads a GPU's memory directly, without host memory.
type GDROptions struct {
	Off   bool  // NCCL_IB_CUDA_SUPPORT=0
	Level Class // NCCL_NET_GDR_LEVEL: the largest allowed distance of a card; PXB unless set
	Read  int   // NCCL_NET_GDR_READ: 1, 0, or negative: depends on the GPU
	C2C   bool  // NCCL_NET_GDR_C2C: a path over C2C and then PCI is near enough
}

// A GDR is the decision whether a GPU and a card use GPUDirect RDMA.
type GDR struct {
	GPU      int    `json:"gpu"` // in System.GPUs
	NIC      int    `json:"nic"` // in System.NICs
	Enabled  bool   `json:"enabled"`
	Read     bool   `json:"read"` // also for sending: the card reads GPU memory
	Distance Class  `json:"distance"`
	Level    Class  `json:"level"`
	Why      string `json:"why,omitempty"` // the reason if not enabled, unless it is the distance
}

// GDR decides as NCCL does: by the distance over PCI, unless the GPU or the card is known
// not to support it. It does not check whether the kernel gives the card access to the
// GPU's memory (nvidia_peermem, DMA-BUF).
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
		d.Why = "it is not an RDMA device"
	case g.GDR != nil && !*g.GDR:
		d.Why = "the GPU cannot"
	case n.GDR != nil && !*n.GDR:
		d.Why = "the HCA cannot"
	}
	d.Enabled = d.Why == "" && d.Distance <= d.Level
	d.Read = d.Enabled && (o.Read > 0 || o.Read < 0 && s.readsWell(gpu))
	return d
}

// readsWell is NCCL's rule for GPUs that cards may read: GPUs from Ampere on, and older
// ones that have NVLinks, or are alone, so that other traffic over PCI does not suffer.
// An unknown GPU counts as recent.
func (s *System) readsWell(gpu int) bool {
	g := &s.GPUs[gpu]
	return g.SM == 0 || g.SM >= 80 || len(g.NVLinks) > 0 || len(s.GPUs) == 1
}

// String returns NCCL's line in the log.
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

// GPUAt returns the index of the GPU with an address, or -1 if there is none.
func (s *System) GPUAt(id sysfs.BusID) int {
	return slices.IndexFunc(s.GPUs, func(g GPU) bool { return g.BusID == id })
}

// Using returns the system with only those of its NICs that keep accepts.
func (s *System) Using(keep func(NIC) bool) *System {
	t := *s
	t.NICs = slices.DeleteFunc(slices.Clone(s.NICs), func(n NIC) bool { return !keep(n) })
	return &t
}
