// Package nvml queries NVIDIA's management library about a machine's GPUs. The library is loaded
// at its first use, so that a program which imports the package starts on machines without a
// driver. The binding is go-nvml's, which needs cgo: the package only works in builds with cgo
// and the tag nvml; without them every query fails with ErrNoBinding.
package nvml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// Reasons for a missing answer. Errors wrap one of these if possible; any other error is
// unexpected.
var (
	ErrNotSupported = errors.New("not supported by this GPU and driver")
	ErrNoPermission = errors.New("no permission")
	ErrLost         = errors.New("the GPU is lost: it does not answer the driver")
	ErrReset        = errors.New("the GPU must be reset before it can be used")
	ErrNoBinding    = errors.New("this build of the harness has no binding for NVML (cgo and the build tag nvml)")
	ErrNoLibrary    = errors.New("NVML cannot be used")
)

// A Driver is NVML's description of the driver.
type Driver struct {
	GPUs    int    // number of GPUs
	Version string // the driver's: 580.65.06
	Library string // NVML's
	CUDA    int    // the newest CUDA that the driver supports: 13000 for 13.0
}

// A GPU is one GPU as its driver describes it.
type GPU struct {
	Index int
	UUID  string
	Bus   sysfs.BusID
	ID    string // PCI device number, four hex digits

	Name, VBIOS, InfoROM, Board, GSP sysfs.Fact[string]
	MemoryBytes                      sysfs.Fact[uint64]
	MaxClockMHz                      sysfs.Fact[uint64] // of the SMs

	ECC        sysfs.Fact[Modes]
	Volatile   sysfs.Fact[uint64] // uncorrectable errors since the driver was loaded
	SRAM       sysfs.Fact[ECCCount]
	Exceeded   sysfs.Fact[bool] // SRAM's errors exceed the vendor's threshold
	DRAM       sysfs.Fact[ECCCount]
	Remap      sysfs.Fact[Remap]
	Spent      sysfs.Fact[int] // banks of memory without a spare row
	Pages      sysfs.Fact[Pages]
	Unfixable  sysfs.Fact[bool] // memory that cannot be repaired
	Repair     sysfs.Fact[bool] // a repair of channels or TPCs waits for a reset
	InfoROMOK  sysfs.Fact[bool]
	Links      sysfs.Fact[[]Link]
	Fabric     sysfs.Fact[Fabric]
	Peers      sysfs.Fact[map[int]string] // NVLink status to other GPUs: "OK" or what is wrong
	PCIe       sysfs.Fact[PCIe]
	Clocks     sysfs.Fact[Reasons]
	Pstate     sysfs.Fact[int]
	Heat       sysfs.Fact[int] // °C
	Hottest    sysfs.Fact[int] // limit at work
	MemoryHeat sysfs.Fact[int]
	MemoryMax  sysfs.Fact[int]
	Margin     sysfs.Fact[int] // °C until it slows down
	Power      sysfs.Fact[Power]

	Persistence sysfs.Fact[bool]
	MIG         sysfs.Fact[Modes]
	Compute     sysfs.Fact[string] // compute mode: Default, Exclusive_Process, …
	Recovery    sysfs.Fact[string] // recovery action: None, Reset, …
	Processes   sysfs.Fact[[]int]  // PIDs that hold a context, for compute or graphics
	Energy      sysfs.Fact[uint64] // mJ since the driver started the GPU
}

// Modes says whether something is on, and whether it will be on after a reset.
type Modes struct{ Now, Pending bool }

// An ECCCount counts the errors of a memory over its life.
type ECCCount struct{ Uncorrectable, Correctable uint64 }

// Remap counts a GPU's memory rows that were replaced by spare ones.
type Remap struct {
	Uncorrectable   int // for uncorrectable errors
	Pending, Failed bool
}

// Pages is a GPU's retired pages (before Ampere).
type Pages struct {
	SingleBit, DoubleBit int
	Pending              bool
}

// A Link is an NVLink.
type Link struct {
	Number int
	Up     bool
	To     string      // "switch", "GPU", "CPU", or "" if the driver does not say
	Remote sysfs.BusID // of the far end; sysfs.OpaqueBusID if the driver hides it
	Mbit   int         // MB/s of the link; 0 if not reported
}

// Fabric is a GPU's registration with the NVSwitch fabric.
type Fabric struct {
	State   int    // 0 not supported, 1 not started, 2 in progress, 3 completed
	Status  string // "" when the registration succeeded
	Health  uint32 // health mask; 0 if not reported
	Summary int    // 0 not reported, 1 healthy, 2 unhealthy, 3 limited
	Cluster string // UUID of the NVLink domain of several nodes; "" if it is a single node's
	Clique  int
}

// PCIe is a GPU's link to its slot.
type PCIe struct {
	Generation, Width       int // now
	MaxGeneration, MaxWidth int // of GPU and slot together
	OwnGeneration           int // of the GPU alone; 0 if not reported
}

// Power is in watts.
type Power struct {
	Limit, Default float64
}

// A Place is the location of a GPU, with the far ends of its NVLinks.
type Place struct {
	BusID        sysfs.BusID
	Name, UUID   string
	SM           int          // compute capability times ten
	MemoryNode   *int         // NUMA node of its own memory; nil if it is not one
	CPUAffinity  sysfs.CPUSet // empty: not reported
	NUMAAffinity sysfs.CPUSet // nodes of nearby memory; empty: not reported
	Links        []Link       // those that are up
}

// Links are a GPU's links at one time. What the driver does not report is 0, or missing in
// Errors.
type Links struct {
	PCIDevice string              `json:"-"`            // four hex digits
	PCIeGen   int                 `json:"pcie_gen"`     // current: idle links slow down
	PCIeWidth int                 `json:"pcie_width"`   // current
	MaxGen    int                 `json:"pcie_max_gen"` // that GPU and slot support
	MaxWidth  int                 `json:"pcie_max_width"`
	NVLinks   int                 `json:"nvlinks"` // that are up
	Peers     map[sysfs.BusID]int `json:"-"`       // direct NVLinks to another GPU, without a switch
	Errors    map[string]uint64   `json:"errors"`  // counters since the driver was loaded, by name; totals of all NVLinks
}

// A Reading is one GPU under load at one time. What the driver does not report is 0.
type Reading struct {
	Celsius     int
	Watts       float64
	LimitWatts  float64
	MHz         int
	Reasons     Reasons
	Persistence *bool
}

// Reasons are the reasons for the current clocks, as NVML's bits.
type Reasons uint64

// Reasons that lower the clocks of a GPU under load: the hardware's own slowdown, because of heat
// or its power brake, and the driver's, because of heat.
const (
	HardwareSlowdown Reasons = 0x8 | 0x40 | 0x80
	ThermalSlowdown  Reasons = 0x20
)

// reasonNames are the names of NVML's bits of clock event reasons.
var reasonNames = []struct {
	bit  Reasons
	name string
}{
	{0x1, "idle"}, {0x2, "application clocks"}, {0x4, "power cap"}, {0x8, "hardware slowdown"}, {0x10, "sync boost"},
	{0x20, "software thermal slowdown"}, {0x40, "hardware thermal slowdown"}, {0x80, "power brake"}, {0x100, "display clocks"},
}

func (r Reasons) String() string {
	var out []string
	for _, n := range reasonNames {
		if r&n.bit != 0 {
			out = append(out, n.name)
			r &^= n.bit
		}
	}
	if r != 0 {
		out = append(out, fmt.Sprintf("%#x", uint64(r)))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
