package diag

import (
	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// A Machine is the GPUs of this process.
type Machine interface {
	GPUs() []GPU
	// Device prepares a GPU. What it gives is used by one goroutine at a time,
	// which is locked to its thread.
	Device(gpu int) (Device, error)
	// Peer says why GPU a cannot use b's memory directly; nil: it can.
	Peer(a, b int) error
	Close() error
}

// A Device is a GPU with what is allocated on it. Seconds are those of the GPU's
// own clock.
type Device interface {
	// Take allocates the free memory in pieces as large as they get, up to a
	// number of bytes (0: all), and says how many bytes it has got of how many.
	Take(most int64) (got, of int64, err error)
	// Write fills what was taken.
	Write(p memPattern) (seconds float64, err error)
	// Verify compares what was taken with a pattern; with invert it leaves the
	// complement.
	Verify(p memPattern, invert bool) (m miscompares, seconds float64, err error)
	// Flip changes bits of one word of what was taken: an injected fault.
	Flip(offset int64, mask uint64) error
	// Stream goes through a part of what was taken, and checks the result.
	Stream(o streamKind) (bytes int64, seconds float64, err error)
	// Host copies to or from pinned memory, so many times, and verifies what has
	// come back.
	Host(d direction, copies int) (bytes int64, seconds float64, m miscompares, err error)
	// Remote writes a pattern to a peer's memory, has the peer verify it, and
	// reads it back from here.
	Remote(peer Device, p memPattern) (remoteResult, error)
	// Product multiplies matrices.
	Product(w productWork) (productResult, error)
	// Free gives all memory back.
	Free() error
}

// A streamKind is a way through memory.
type streamKind uint8

// The streams. Triad is a = b + 3c.
const (
	readStream streamKind = iota
	writeStream
	copyStream
	triadStream
)

func (s streamKind) String() string { return [...]string{"read", "write", "copy", "triad"}[s] }

// A direction is of copies between host and GPU.
type direction uint8

// The directions.
const (
	toDevice direction = iota
	toHost
	bothWays // counted together
)

func (d direction) String() string { return [...]string{"h2d", "d2h", "both"}[d] }

// A remoteResult is what came of access to a peer.
type remoteResult struct {
	Bytes           int64
	Write, Read     float64 // seconds
	Written, ReadBy miscompares
	Staged          bool // no direct access: copied through the host, Write is that copy
}

// productKind is the arithmetic of a product.
type productKind uint8

// The kinds.
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
	Exact  bool    // of small whole numbers, so that the processor knows the result
	Rounds int     // after each, results are compared with the first round's
	For    float64 // seconds that a launch is to take; instead of Rounds
	FlipSM int     // the multiprocessor that gets a wrong bit, plus 1: an injected fault
}

// productResult are what came of it.
type productResult struct {
	Seconds float64
	Flops   float64
	Way     string // what computed them: "wgmma"
	Blocks  []blockOutcome
	Wrong   int // results of the first block that the processor's own differ from, with Exact
}

// An blockOutcome is a block's.
type blockOutcome struct {
	Sum uint64
	SM  uint32
	Bad uint32 // results that were not as in the first round
}

// Sensors read what GPUs say of themselves under load: [nvml.Library], or a test's.
type Sensors interface {
	Read(bus sysfs.BusID) (nvml.Reading, error)
	Close() error
}
