package health

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/assay-hpc/assay/harness/sysfs"
)

// Why there is no answer. Errors of a Source wrap one of these where they can;
// any other error is unforeseen.
var (
	ErrNotSupported = errors.New("not supported by this GPU and driver")
	ErrNoPermission = errors.New("no permission")
	ErrLost         = errors.New("the GPU is lost: it does not answer the driver")
	ErrReset        = errors.New("the GPU must be reset before it can be used")
	ErrNoAnswer     = errors.New("no answer in time")
	ErrNoBinding    = errors.New("this build of the harness has no binding for NVML (cgo and the build tag nvml)")
	ErrNoLibrary    = errors.New("NVML cannot be loaded")
	ErrElsewhere    = errors.New("the driver of another machine cannot be asked")
)

// absent reports whether there is no driver to ask, rather than one that does
// not answer.
func absent(err error) bool {
	return errors.Is(err, ErrNoBinding) || errors.Is(err, ErrNoLibrary) || errors.Is(err, ErrElsewhere)
}

// A Source is what tells about GPUs: NVML, or what a test makes up.
type Source interface {
	// Driver describes the driver, or says why there is none: the error wraps
	// ErrNoBinding or ErrNoLibrary if nothing can be asked for that reason.
	Driver() (Driver, error)
	// GPU asks for all about one GPU, numbered from 0, and announces what it
	// asks for, which is the last that is known of a call that never returns.
	// An error is about the GPU as a whole. It may be called for several GPUs
	// at the same time.
	GPU(index int, asking func(what string)) (GPU, error)
	// Counters asks for what counts errors, by the names in counters.go. What
	// a GPU does not count is not there.
	Counters(index int) (map[string]uint64, error)
}

// A Driver is what NVML says of itself.
type Driver struct {
	GPUs    int    // that it has
	Version string // the driver's: 580.65.06
	Library string // NVML's
	CUDA    int    // the newest CUDA of the driver: 13000 for 13.0
}

// A Fact is what was asked for, or why it is not known.
type Fact[T any] struct {
	Value T
	Err   error
}

// Known is a fact with a value.
func Known[T any](v T) Fact[T] { return Fact[T]{Value: v} }

// Unknown is a fact without one.
func Unknown[T any](err error) Fact[T] { return Fact[T]{Err: err} }

// A GPU is one GPU as its driver describes it.
type GPU struct {
	Index int
	UUID  string
	Bus   sysfs.BusID
	ID    string // PCI device number, four hex digits

	Name, VBIOS, InfoROM, Board, GSP Fact[string]
	MemoryBytes                      Fact[uint64]
	MaxClockMHz                      Fact[uint64] // of the SMs

	ECC        Fact[Modes]
	Volatile   Fact[uint64] // uncorrectable errors since the driver was loaded
	SRAM       Fact[SRAM]
	DRAM       Fact[DRAM]
	Remap      Fact[Remap]
	Spent      Fact[int] // banks of memory without a spare row
	Pages      Fact[Pages]
	Unfixable  Fact[bool] // memory that cannot be repaired
	Repair     Fact[bool] // a repair of channels or TPCs waits for a reset
	InfoROMOK  Fact[bool]
	Links      Fact[[]Link]
	Fabric     Fact[Fabric]
	Peers      Fact[map[int]string] // NVLink status to other GPUs: "OK" or what is wrong
	PCIe       Fact[PCIe]
	Clocks     Fact[Reasons]
	Pstate     Fact[int]
	Heat       Fact[int] // °C
	Hottest    Fact[int] // that the GPU may be at work
	MemoryHeat Fact[int]
	MemoryMax  Fact[int]
	Margin     Fact[int] // °C to where it slows down
	Power      Fact[Power]

	Persistence Fact[bool]
	MIG         Fact[Modes]
	Compute     Fact[string] // compute mode: Default, Exclusive_Process, …
	Recovery    Fact[string] // recovery action: None, Reset, …
	Processes   Fact[[]int]  // PIDs that hold a context, of computing or of graphics
}

// Modes says whether something is on, and whether it will be after a reset.
type Modes struct{ Now, Pending bool }

// SRAM is the error counts of a GPU's SRAM over its life.
type SRAM struct {
	Uncorrectable, Correctable uint64
	Exceeded                   Fact[bool] // the vendor's threshold
}

// DRAM is the error counts of a GPU's memory over its life.
type DRAM struct{ Uncorrectable, Correctable uint64 }

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
	Up     bool
	To     string // "switch", "GPU", "CPU", or "" when the driver does not say
	Mbit   int    // MB/s of the link; 0 when it is not told
	Number int
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

// Reasons are the reasons why clocks are what they are, as NVML's bits.
type Reasons uint64

// Power is watts.
type Power struct {
	Limit, Default float64
}

// why puts an error in few words.
func why(err error) string {
	if errors.Is(err, ErrNoPermission) {
		return fmt.Sprintf("%v: root may see it", err)
	}
	return err.Error()
}

// permission makes the kernel's error of access one that checks know.
func permission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return ErrNoPermission
	}
	return err
}

func isNoACS(err error) bool { return errors.Is(err, sysfs.ErrNoACS) || errors.Is(err, fs.ErrNotExist) }
