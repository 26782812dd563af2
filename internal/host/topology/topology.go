// Package topology describes a machine as a collective sees it: GPUs, network cards, NUMA
// nodes, and the connections between them (PCI switches and host bridges, NVLinks,
// NVSwitches). A [System] is plain data. It comes from the machine's own files and its
// driver ([Read]), or from a file in this package's JSON or in NCCL's XML ([Load]), and
// can be written as either, so that plans for an 8-GPU node can be made and tested on a
// laptop.
//
// All functions of a System are pure: the path between two devices ([System.Path]) with
// nvidia-smi's name for it and NCCL's finer class, the matrix of nvidia-smi topo -m
// ([System.Matrix]), parallel rings over the links ([System.Rings]), and the card nearest
// to each GPU ([System.Rails]).
//
// Bandwidths are in GB/s of 1e9 bytes, one direction. They are the planning figures with
// which NCCL compares paths, not measurements.
//
// A System may be used from several goroutines as long as none changes it.
package topology

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A System is one machine.
type System struct {
	Host     string   `json:"host,omitempty"`      // its name
	HostHash string   `json:"host_hash,omitempty"` // NCCL's host_hash, as it was read
	CPUs     []NUMA   `json:"cpus"`                // by number
	Switches []PCI    `json:"switches,omitempty"`  // PCI switches: outer ones before inner ones, then by address
	GPUs     []GPU    `json:"gpus"`                // in the driver's order
	NICs     []NIC    `json:"nics"`
	Notes    []string `json:"notes,omitempty"` // what could not be read, for people
}

// A NUMA is a NUMA node with its processors.
type NUMA struct {
	ID        int          `json:"id"` // -1: not known
	CPUs      sysfs.CPUSet `json:"cpus"`
	Arch      string       `json:"arch,omitempty"`   // x86_64, arm64, ppc64
	Vendor    string       `json:"vendor,omitempty"` // GenuineIntel, AuthenticAMD, …
	Family    int          `json:"family,omitempty"`
	Model     int          `json:"model,omitempty"`
	Distances []int        `json:"distances,omitempty"` // ACPI's, to each of System.CPUs
}

// A PCI is a PCI function and its position.
type PCI struct {
	BusID      sysfs.BusID   `json:"bus_id"`
	NUMA       int           `json:"numa"`                  // -1: not known
	HostBridge string        `json:"host_bridge,omitempty"` // such as pci0000:15; "": not known
	Switches   []sysfs.BusID `json:"switches,omitempty"`    // upstream ports of the switches above it, outermost first
	// BehindPort means that the function's bus is behind a port, which all functions on
	// the bus share.
	BehindPort bool   `json:"behind_port,omitempty"`
	Class      uint32 `json:"class,omitempty"` // 24 bits
	Vendor     uint16 `json:"vendor,omitempty"`
	Device     uint16 `json:"device,omitempty"`
	SubVendor  uint16 `json:"subsystem_vendor,omitempty"`
	SubDevice  uint16 `json:"subsystem_device,omitempty"`
	// Link is the best that both the function and the port above it support, not the
	// current state: idle GPUs reduce their link's speed.
	Link sysfs.PCILink `json:"link,omitzero"`
}

// A GPU is an NVIDIA GPU.
type GPU struct {
	PCI
	Index int    `json:"index"` // NVML's and nvidia-smi's number; -1: not known
	Name  string `json:"name,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	SM    int    `json:"sm,omitempty"`  // compute capability times ten; 0: not known
	Rank  int    `json:"rank"`          // NCCL's, from NCCL's own file; -1: not known
	GDR   *bool  `json:"gdr,omitempty"` // network cards can access its memory directly; nil: not known
	// MemoryNode is the NUMA node that the GPU's own memory forms (GPU NUMA ID); nil:
	// none.
	MemoryNode   *int         `json:"memory_node,omitempty"`
	CPUAffinity  sysfs.CPUSet `json:"cpu_affinity"`
	NUMAAffinity sysfs.CPUSet `json:"numa_affinity"` // node numbers
	NVLinks      []NVLink     `json:"nvlinks,omitempty"`
	C2C          *C2CLink     `json:"c2c,omitempty"`
}

// A LinkEnd is the kind of device at the far end of an NVLink.
type LinkEnd string

// The kinds of far ends.
const (
	ToGPU    LinkEnd = "gpu"
	ToSwitch LinkEnd = "switch" // an NVSwitch
	ToCPU    LinkEnd = "cpu"    // POWER9
)

// An NVLink is a bond of links from a GPU to one far end.
type NVLink struct {
	Target sysfs.BusID `json:"target"` // sysfs.OpaqueBusID: a switch that the driver does not show
	Count  int         `json:"count"`
	To     LinkEnd     `json:"to"`
}

// A C2CLink is the link between a GPU and its Grace processor.
type C2CLink struct {
	MBps  int `json:"mb_per_s"` // of each link
	Count int `json:"count"`
}

// A NIC is a port of a network device: an RDMA device, or a plain network interface that
// does not belong to one.
type NIC struct {
	PCI
	OnPCI     bool    `json:"on_pci"` // the fields of PCI are valid
	Name      string  `json:"name"`   // mlx5_0, eth0; "": not known
	RDMA      bool    `json:"rdma"`
	Port      int     `json:"port,omitempty"`
	Mbit      int     `json:"mbit_per_s,omitempty"` // 0: not known
	LinkLayer string  `json:"link_layer,omitempty"` // InfiniBand, Ethernet
	State     string  `json:"state,omitempty"`      // ACTIVE, DOWN, up, down, …
	GUID      string  `json:"guid,omitempty"`       // 0x and hexadecimal digits
	LatencyUs float64 `json:"latency_us,omitempty"`
	MaxConn   int     `json:"max_conn,omitempty"`
	GDR       *bool   `json:"gdr,omitempty"` // it can access GPUs' memory; nil: not known
}

// Devices returns the number of devices that have paths: GPUs, then NICs.
func (s *System) Devices() int { return len(s.GPUs) + len(s.NICs) }

// pci returns device i's position, or nil if it is not on PCI.
func (s *System) pci(i int) *PCI {
	if i < len(s.GPUs) {
		return &s.GPUs[i].PCI
	}
	if n := &s.NICs[i-len(s.GPUs)]; n.OnPCI {
		return &n.PCI
	}
	return nil
}

// Label returns a NIC's name, with its port if the device has several.
func (s *System) Label(nic int) string {
	n := s.NICs[nic]
	if n.Name == "" {
		return n.BusID.String()
	}
	for i, other := range s.NICs {
		if i != nic && other.Name == n.Name {
			return fmt.Sprintf("%s:%d", n.Name, n.Port)
		}
	}
	return n.Name
}

// numa returns the record of a NUMA node.
func (s *System) numa(id int) (NUMA, bool) {
	i := slices.IndexFunc(s.CPUs, func(c NUMA) bool { return c.ID == id })
	if i < 0 {
		return NUMA{}, false
	}
	return s.CPUs[i], true
}

// swtch returns the record of a PCI switch.
func (s *System) swtch(id sysfs.BusID) (PCI, bool) {
	for i := range s.Switches {
		if s.Switches[i].BusID == id {
			return s.Switches[i], true
		}
	}
	return PCI{}, false
}

// sort puts NUMA nodes and switches in their order.
func (s *System) sort() {
	slices.SortFunc(s.CPUs, func(a, b NUMA) int { return a.ID - b.ID })
	slices.SortFunc(s.Switches, func(a, b PCI) int {
		if d := len(a.Switches) - len(b.Switches); d != 0 {
			return d
		}
		return a.BusID.Compare(b.BusID)
	})
}

// FewLinks says which GPUs have fewer NVLinks than others of the machine; "" if none has, or no GPU has any.
func (s *System) FewLinks() string {
	most := 0
	counts := make([]int, len(s.GPUs))
	for i, g := range s.GPUs {
		for _, l := range g.NVLinks {
			counts[i] += l.Count
		}
		most = max(most, counts[i])
	}
	var few []string
	for i, n := range counts {
		if n < most {
			few = append(few, fmt.Sprintf("GPU%d has %d", i, n))
		}
	}
	if len(few) == 0 {
		return ""
	}
	return fmt.Sprintf("NVLinks: %s, and others have %d", strings.Join(few, ", "), most)
}
