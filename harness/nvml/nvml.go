// Package nvml asks NVIDIA's management library about a machine's GPUs. The
// library is looked up when it is first asked for, so that a program that imports
// the package starts on machines without a driver. The binding is go-nvml's, which
// needs cgo: the package has code only in builds with cgo and the tag nvml; without
// them every question fails with ErrNoBinding.
package nvml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// Why there is no answer. Errors wrap one of these where they can; any other error is
// unforeseen.
var (
	ErrNotSupported = errors.New("not supported by this GPU and driver")
	ErrNoPermission = errors.New("no permission")
	ErrLost         = errors.New("the GPU is lost: it does not answer the driver")
	ErrReset        = errors.New("the GPU must be reset before it can be used")
	ErrNoBinding    = errors.New("this build of the harness has no binding for NVML (cgo and the build tag nvml)")
	ErrNoLibrary    = errors.New("NVML cannot be loaded")
)

// A Driver is what NVML says of itself.
type Driver struct {
	GPUs    int    // that it has
	Version string // the driver's: 580.65.06
	Library string // NVML's
	CUDA    int    // the newest CUDA of the driver: 13000 for 13.0
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
	Exceeded   sysfs.Fact[bool] // SRAM's errors are beyond the vendor's threshold
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
	Hottest    sysfs.Fact[int] // that the GPU may be at work
	MemoryHeat sysfs.Fact[int]
	MemoryMax  sysfs.Fact[int]
	Margin     sysfs.Fact[int] // °C to where it slows down
	Power      sysfs.Fact[Power]

	Persistence sysfs.Fact[bool]
	MIG         sysfs.Fact[Modes]
	Compute     sysfs.Fact[string] // compute mode: Default, Exclusive_Process, …
	Recovery    sysfs.Fact[string] // recovery action: None, Reset, …
	Processes   sysfs.Fact[[]int]  // PIDs that hold a context, of computing or of graphics
}

// Modes says whether something is on, and whether it will be after a reset.
type Modes struct{ Now, Pending bool }

// An ECCCount is the errors that a memory has had over its life.
type ECCCount struct{ Uncorrectable, Correctable uint64 }

// Remap is a GPU's rows of memory that spare ones stand in for.
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
	To     string      // "switch", "GPU", "CPU", or "" when the driver does not say
	Remote sysfs.BusID // of the far end; sysfs.OpaqueBusID when the driver hides it
	Mbit   int         // MB/s of the link; 0 when it is not told
}

// Fabric is how a GPU stands to the fabric of NVSwitches.
type Fabric struct {
	State   int    // 0 not supported, 1 not started, 2 in progress, 3 completed
	Status  string // "" when the registration succeeded
	Health  uint32 // health mask; 0 when it is not told
	Summary int    // 0 not told, 1 healthy, 2 unhealthy, 3 limited
	Cluster string // UUID of the NVLink domain of several nodes; "" when it is one node's
	Clique  int
}

// PCIe is a GPU's link to its slot.
type PCIe struct {
	Generation, Width       int // now
	MaxGeneration, MaxWidth int // of GPU and slot together
	OwnGeneration           int // of the GPU alone; 0 when it is not told
}

// Power is watts.
type Power struct {
	Limit, Default float64
}

// A Place is where a GPU is, and what its NVLinks lead to.
type Place struct {
	BusID        sysfs.BusID
	Name, UUID   string
	SM           int          // compute capability times ten
	MemoryNode   *int         // NUMA node of its own memory; nil without
	CPUAffinity  sysfs.CPUSet // empty: not told
	NUMAAffinity sysfs.CPUSet // nodes of nearby memory; empty: not told
	Links        []Link       // those that are up
}

// Links are a GPU's links at one time. What the driver does not tell is 0, or not in
// Errors.
type Links struct {
	PCIDevice string              `json:"-"`            // four hex digits
	PCIeGen   int                 `json:"pcie_gen"`     // now: links rest when there is nothing to do
	PCIeWidth int                 `json:"pcie_width"`   // now
	MaxGen    int                 `json:"pcie_max_gen"` // that GPU and slot can have
	MaxWidth  int                 `json:"pcie_max_width"`
	NVLinks   int                 `json:"nvlinks"` // that are up
	Peers     map[sysfs.BusID]int `json:"-"`       // NVLinks to a GPU without a switch between
	Errors    map[string]uint64   `json:"errors"`  // counters since the driver was loaded, by name; of all NVLinks together
}

// A Reading is one GPU under load at one time. What the driver does not tell is 0.
type Reading struct {
	Celsius     int
	Watts       float64
	LimitWatts  float64
	MHz         int
	Reasons     Reasons
	Persistence *bool
}

// Reasons are the reasons why clocks are what they are, as NVML's bits.
type Reasons uint64

// What holds a GPU's clocks down though it is to work: the hardware's own slowdown, for
// heat or by its power brake; and the driver, for heat.
const (
	HardwareSlowdown Reasons = 0x8 | 0x40 | 0x80
	ThermalSlowdown  Reasons = 0x20
)

// reasonNames are NVML's bits of clock event reasons.
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
