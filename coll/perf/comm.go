package perf

import (
	"context"
	"fmt"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A Comm is one rank's end of a communicator. Every operation blocks until this
// rank's part is complete. A Comm is used by one goroutine at a time, except for Exchange
// and Barrier of the World's communicators, which that goroutine calls too.
//
// A Comm may also be a Remote: then operations are enqueued, and buffers are device memory.
//
// Buffers come from Alloc. AllToAll and SendRecv are also called with the same memory as send and
// recv, as in nccl-tests: the result is not checked, but it must not be an error.
type Comm interface {
	Rank() int
	Size() int

	// Do does the collective o.Coll with Send, Recv, Count, Type, Red and Root.
	Do(o *op.Op) error

	// Group launches the operations that f issues on this communicator as one.
	Group(f func() error) error

	// Exchange passes b to every rank, and returns what all ranks passed, by rank. It is out of
	// band and not timed. The result belongs to the caller.
	Exchange(ctx context.Context, b []byte) ([][]byte, error)
	// Barrier returns when all ranks have called it.
	Barrier() error

	// Alloc returns n bytes of the kind that suits the engine best; Free releases them.
	Alloc(n int) ([]byte, error)
	Free([]byte)
}

// A PreMulSummer is a Comm with sums that first multiply this rank's input by a scalar of its own
// (-o mulsum).
type PreMulSummer interface {
	// PreMulSum creates such a reduction for t; scalar is one element of t. Every rank of the
	// communicator creates it at the same point.
	PreMulSum(scalar []byte, t elem.Type) (elem.Op, error)
	FreeOp(op elem.Op) error
}

// A Chooser is a Comm that reports the algorithm and protocol of its last operation, such as
// "ring/simple". Empty means unknown.
type Chooser interface{ Chosen() string }

// An Explainer is a Comm that explains its last error.
type Explainer interface{ LastError() string }

// A Device describes what a rank computes with, for the header.
type Device struct {
	Index int
	Bus   [3]int // PCI domain, bus, device; zero for a processor
	Name  string
}

// Address is the device's PCI address, such as 0000:3b:00.
func (d Device) Address() string { return address(d.Bus) }

func address(bus [3]int) string { return fmt.Sprintf("%04x:%02x:%02x", bus[0], bus[1], bus[2]) }

// A World is what a process has opened: its own ranks, and what the benchmark must know about
// them. Only Comms must be set. The caller closes Comms itself after Run.
type World struct {
	Comms   []Comm // this process's ranks, ascending
	Process int    // this process's number among all
	Engine  string // for people and for benchstat: "assay"
	Version int    // of the library API that the engine follows, as NCCL encodes it: 23007

	Notes []string // for the header

	// Against are the engines that --versus compares this one with.
	Against []Rival

	// Device describes the i-th of Comms. Without it ranks are processors.
	Device func(i int) Device
	// Split returns a communicator of the ranks with the same color. Every
	// rank calls it once. Without it NCCL_TESTS_SPLIT is refused.
	Split func(c Comm, color int) (Comm, error)
	// Abort makes every operation of the world's communicators, on every rank,
	// return an error soon. It may be called from any goroutine, repeatedly.
	Abort func(cause error)
}
