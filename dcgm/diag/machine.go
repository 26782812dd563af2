package diag

import (
	"fmt"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A GPU is a GPU, with CUDA's index in this process.
type GPU struct {
	Index     int         `json:"index"`
	Name      string      `json:"name"`
	UUID      string      `json:"uuid"`
	Bus       sysfs.BusID `json:"bus"`
	PCIDevice string      `json:"pci_device,omitempty"` // four hex digits
	Bytes     int64       `json:"bytes"`
	SMs       int         `json:"sms"`
}

// String describes the GPU for human-readable text.
func (g GPU) String() string {
	return fmt.Sprintf("%s: %s, %s, %.1f GB, %d multiprocessors", gpuName(g.Index), g.Name, g.Bus, float64(g.Bytes)/1e9, g.SMs)
}

func gpuName(i int) string { return fmt.Sprintf("GPU %d", i) }

// A Machine contains the GPUs of this process.
type Machine interface {
	GPUs() []GPU
	// Device prepares a GPU. Only one goroutine at a time, which must be locked to its thread, may
	// use the result.
	Device(gpu int) (Device, error)
	Close() error
}

// A Device is a GPU with the memory allocated on it. Seconds are measured with the GPU's own clock.
type Device interface {
	// Take allocates the free memory in pieces as large as possible, up to most bytes (0: all), and
	// returns how many bytes it allocated and how many there are in total.
	Take(most int64) (got, of int64, err error)
	// Write fills the allocated memory.
	Write(p memPattern) (seconds float64, err error)
	// Verify compares the allocated memory with a pattern; with invert it stores the complement.
	Verify(p memPattern, invert bool) (m miscompares, seconds float64, err error)
	// Flip changes bits of one word of the allocated memory: an injected fault.
	Flip(offset int64, mask uint64) error
	// Stream runs a stream over a part of the allocated memory, and checks the result.
	Stream(o streamKind) (bytes int64, seconds float64, err error)
	// Host copies to or from pinned memory the given number of times, and verifies the copied data.
	Host(d direction, copies int) (bytes int64, seconds float64, m miscompares, err error)
	// Remote writes a pattern to a peer's memory, lets the peer verify it, and reads it back.
	Remote(peer Device, p memPattern) (remoteResult, error)
	// Product multiplies matrices.
	Product(w productWork) (productResult, error)
	// Free frees all memory.
	Free() error
}

// A streamKind is a kind of memory access.
type streamKind uint8

// The streams. Triad is a = b + 3c.
const (
	readStream streamKind = iota
	writeStream
	copyStream
	triadStream
)

func (s streamKind) String() string { return [...]string{"read", "write", "copy", "triad"}[s] }

// A direction is the direction of copies between host and GPU.
type direction uint8

// The directions.
const (
	toDevice direction = iota
	toHost
	bothWays // counted together
)

func (d direction) String() string { return [...]string{"h2d", "d2h", "both"}[d] }

// A remoteResult is the result of accesses to a peer's memory.
type remoteResult struct {
	Bytes           int64
	Write, Read     float64 // seconds
	Written, ReadBy miscompares
	Staged          bool // no direct access: copied through the host, Write is the time of that copy
}

// productKind is the arithmetic of a product.
type productKind uint8

// Kinds of arithmetic.
const (
	bf16 productKind = iota
	fp16
	fp32
	fp64
)

func (k productKind) String() string { return [...]string{"bf16", "fp16", "fp32", "fp64"}[k] }

// productWork is a launch of products on all multiprocessors.
type productWork struct {
	Kind   productKind
	Seed   uint64  // of the matrices
	Exact  bool    // of small whole numbers, so that the CPU can compute the result
	Rounds int     // after each round, the results are compared with those of the first
	For    float64 // target length of a launch in seconds; instead of Rounds
	FlipSM int     // the multiprocessor that gets a wrong bit, plus 1: an injected fault
}

// productResult is the result of the products.
type productResult struct {
	Seconds float64
	Flops   float64
	Way     string // the instruction that computed them: "wgmma"
	Blocks  []blockOutcome
	Wrong   int // results of the first block that differ from the CPU's, with Exact
}

// A blockOutcome is the outcome of a block.
type blockOutcome struct {
	Sum uint64
	SM  uint32
	Bad uint32 // results that differ from the first round
}

// Sensors read the state of GPUs under load: [nvml.Library], or a fake in tests.
type Sensors interface {
	Read(bus sysfs.BusID) (nvml.Reading, error)
	Close() error
}
