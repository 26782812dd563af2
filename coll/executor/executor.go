// Package executor is the contract between a communicator and what does its
// operations on devices: coll/cuda implements Executor, coll implements Host, and
// the program that wants devices gives coll a Factory.
package executor

import (
	"context"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/op"
)

// An Executor does the operations on device memory of one rank of a
// communicator. Abort, Idle and Progress may be called from any goroutine; all else is called by
// the goroutine that uses the communicator.
type Executor interface {
	// Enqueue puts an operation on its stream and returns: it waits for no other
	// rank, and for nothing that runs on the device; nor does it give memory back to
	// the driver or take any, or load code. It does not keep o.
	// After an *op.Error of InvalidUsage or InvalidArgument nothing was done;
	// others break the communicator.
	Enqueue(o *Op) error
	// EnqueueAll does so for the operations of a group, of this executor and
	// of others (Op.On), in their order for each of them. On an error it says whose
	// operation it was.
	EnqueueAll(ops []*Op) (failed int, err error)
	// Stream says on which stream the next operation will come, at the latest while
	// the one of the last operation is still there.
	Stream(stream uintptr) error
	// Alloc returns zeroed device memory; Free takes it back.
	Alloc(n int) (uintptr, error)
	Free(addr uintptr) error
	// Estimate is how long an operation would take, as far as that was measured or can be
	// reckoned. Nothing is done.
	Estimate(o *op.Op) time.Duration
	// Memory is what the communicator takes of its device. It may be called from any
	// goroutine before Close.
	Memory() Memory
	// Suspend gives back what the communicator alone has of its device, when what was
	// enqueued has ended; Resume takes it again, and no operation comes in between. All ranks call them. After an *op.Error of
	// InvalidUsage nothing has changed on any of them; others break the communicator.
	Suspend(context.Context) error
	Resume(context.Context) error
	// Chosen says how the last operation was done: "allreduce_ll/4".
	Chosen() string
	// Idle reports whether all that was enqueued has ended, but for what graphs do. It may
	// be called from any goroutine before Close, and needs Config.AsNCCL: otherwise it is
	// always true.
	Idle() bool
	// Progress says how far the oldest operation is that has not ended, graphs'
	// included. It takes a third of a second at most, may be called from any goroutine
	// before Close, and needs Config.AsNCCL.
	Progress() State
	// Abort makes everything that is enqueued end soon, with whatever result.
	Abort(cause error)
	// Leave says that there will be no more operations. It returns at once; after it,
	// nothing touches the callers' streams, not even Close.
	Leave()
	// Close waits for what is enqueued, and gives everything back. It may come from
	// another goroutine. tell gives every
	// rank what each passes, by rank, when all have called it as often; it is nil
	// after an Abort.
	Close(tell func(byte) ([]byte, error)) error
}

// A Memory is what a communicator takes of its device, in bytes.
type Memory struct {
	Own    int64 // for itself alone
	Shared int64 // its part, an equal one, of what the process's communicators of the device share
}

// A State is how far an operation is, and why.
type State struct {
	Does  Progress
	Ranks []int // that it waits for, as far as that is known
	// Graph is set when the operation belongs to a CUDA graph and waits: since when, at the
	// latest, it has waited for the same messages.
	Graph time.Time
	// Graphs is whether any operation was captured: if none was, nothing happens without a call.
	Graphs bool
}

// A Progress is how far an operation is that has been enqueued.
type Progress string

// The values of Progress.
const (
	Unknown Progress = ""       // it cannot be told
	Idle    Progress = "idle"   // there is none
	Behind  Progress = "behind" // its stream has not come to it
	Begun   Progress = "begun"  // it waits for other ranks
	Slow    Progress = "slow"   // the device has not answered yet
	Stuck   Progress = "stuck"  // the device does not answer
)

// An Op is an operation on device memory, and whose it is.
type Op struct {
	On Executor
	op.Op
	Stream uintptr // that it is enqueued on
	// Also are other streams that Sends and Recvs of this one were called on: it comes
	// behind what they have, and before what they get later.
	Also []uintptr
}

// A Place is where a rank runs.
type Place struct {
	Host    int // ranks with the same number share a host
	Process uint32
}

// A Config is what an executor is made with.
type Config struct {
	Rank, Size int
	Device     int         // this rank's, as its process numbers them
	Places     []Place     // by rank
	Env        *choose.Env // all that choices are made of, beside what executors tell one another
	Log        *debug.Logger
	Host       Host

	// The rank's own, of which no other needs to know.
	Timeout       time.Duration
	CheckPointers bool
	// Fallback is NVIDIA's libnccl.so.2, for what the executor does not do; "": there
	// is none.
	Fallback func() string
	// AsNCCL has the promises of NCCL's API kept: callers may destroy a stream as soon
	// as an operation on it was called, and what is enqueued when the communicator fails
	// stays unfinished until Abort, so that no program takes it for a result.
	AsNCCL bool
}

// A Factory makes executors, of one kind of device.
type Factory struct {
	// Open is called by all ranks. It does all that may wait: for the others, or for
	// what runs on the device.
	Open func(context.Context, Config) (Executor, error)
	// Bus is a device's PCI address.
	Bus func(device int) (string, error)
}

// Host is what an executor has of its communicator.
type Host interface {
	// Exchange gives every rank what each passes, by rank. It takes a millisecond
	// or so: no Enqueue calls it.
	Exchange(ctx context.Context, b []byte) ([][]byte, error)
	// Lane opens connections for operations on the processor's memory, beside those
	// of other lanes. All ranks call it, before the communicator is used.
	Lane(ctx context.Context) (Lane, error)
	// Fail makes the communicator unusable, here and at all other ranks. Any
	// goroutine may call it.
	Fail(err error)
	// Err is what went wrong with the communicator, or nil.
	Err() error
}

// A Lane does operations on the processor's memory, in the order in which one
// goroutine calls them. One that fails, or that ends because the communicator has
// failed, returns an error, which Host.Err has as well.
type Lane interface {
	Do(o *op.Op) error
	// Close frees the connections. No Do is under way. Memory of operations that
	// failed may be looked at by other ranks until it has returned.
	Close() error
}
