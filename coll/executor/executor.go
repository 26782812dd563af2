// Package executor is the contract between a communicator and the component that does its
// operations on devices: coll/cuda implements Executor, coll implements Host, and a program that
// uses devices passes a Factory to coll.
package executor

import (
	"context"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/op"
)

// An Executor does the operations on device memory of one rank of a communicator. Abort, Idle and
// Progress may be called from any goroutine; all other methods are called by the goroutine that
// uses the communicator, unless they say otherwise.
type Executor interface {
	// Enqueue enqueues an operation on its stream and returns. It does not wait for other ranks
	// or for work on the device, it does not allocate memory from the driver or return any to it,
	// and it does not load code. It does not keep o. If it returns an *op.Error of InvalidUsage
	// or InvalidArgument, nothing was done; other errors break the communicator.
	Enqueue(o *Op) error
	// EnqueueAll enqueues the operations of a group, of this executor and of others (Op.On), in
	// order for each of them. On an error it returns the index of the operation that failed. After
	// an Undone nothing was done; other errors break the communicators.
	EnqueueAll(ops []*Op) (failed int, err error)
	// Stream sets the stream of the next operation. It must be called while the stream of the
	// last operation still exists.
	Stream(stream uintptr) error
	// Alloc returns zeroed device memory; Free releases it.
	Alloc(n int) (uintptr, error)
	Free(addr uintptr) error
	// Register registers device memory of all ranks, so that other ranks may write to it directly:
	// collectives whose results go to it, at the same offset on every rank, may then save copies.
	// All ranks call it; it waits for them. Kernels of the program may reach all of it, too.
	// Deregister ends that for this rank, before the memory is freed; all operations that use it
	// have ended on all ranks. With an address of 0 every rank gets n zeroed bytes, for kernels of
	// the program only, or an *op.Error of InvalidUsage, on all ranks, which says why not.
	Register(ctx context.Context, addr uintptr, n int) (Registration, error)
	Deregister(id int) error
	// LSA returns what kernels of the program need to know of the communicator. It waits for no other
	// rank. Only with use there is a table; without, any goroutine may call it.
	LSA(use bool) (LSATeam, error)
	// Estimate returns how long an operation would take, as far as that was measured or can be
	// computed. It does not do the operation.
	Estimate(o *op.Op) time.Duration
	// Memory returns how much memory the communicator uses on its device. It may be called from
	// any goroutine before Close.
	Memory() Memory
	// Suspend releases the device resources that only the communicator uses, once everything
	// enqueued has ended; Resume acquires them again, and no operation comes in between. All
	// ranks call them. After an *op.Error of InvalidUsage nothing has changed on any of them;
	// other errors break the communicator.
	Suspend(context.Context) error
	Resume(context.Context) error
	// Chosen returns how the last operation was done: "allreduce_ll/4".
	Chosen() string
	// Idle reports whether everything enqueued has ended, except the work of graphs. It may be
	// called from any goroutine before Close, and needs Config.AsNCCL: otherwise it is always
	// true.
	Idle() bool
	// Progress returns how far the oldest operation is that has not ended, operations of graphs
	// included. It takes at most a third of a second, may be called from any goroutine before
	// Close, and needs Config.AsNCCL.
	Progress() State
	// Abort makes everything that is enqueued end soon; the results are undefined.
	Abort(cause error)
	// Leave announces that there will be no more operations. It returns at once; afterwards
	// nothing touches the callers' streams, not even Close.
	Leave()
	// Close waits for what is enqueued, and releases everything. It may be called from another
	// goroutine. tell passes a byte to every rank and returns those of all ranks, by rank, when
	// all have called it equally often; it is nil after an Abort.
	Close(tell func(byte) ([]byte, error)) error
}

// An Undone is an error of EnqueueAll before it has done anything.
type Undone struct{ Err error }

func (u Undone) Error() string { return u.Err.Error() }
func (u Undone) Unwrap() error { return u.Err }

// A Checker is an Executor whose device tells it of a failure. Check hands what it has been told to
// Host.Fail. Any goroutine may call it, also after Close.
type Checker interface{ Check() }

// A Normer is an Executor that does operations with an op.Norm.
type Normer interface{ Norms() }

// A Registration is memory of all ranks that they have registered.
type Registration struct {
	ID     int  // for Deregister; 0: nothing has changed, on any rank
	Direct bool // collectives may save copies; the same on all ranks
	LSA    LSA
}

// LSA says where kernels of the program find registered memory of all ranks, from which they load and
// to which they store ("load/store accessible"; NCCL's device API). It is of one rank's device.
type LSA struct {
	Window uintptr // device address of an ncclWindow_vidmem; 0: there is none, on any rank
	First  uintptr // where the memory of rank 0 begins; that of rank r begins r*Stride bytes behind
	Stride uint64  // a multiple of 4 GiB
	Why    string  // why there is no window
}

// An LSATeam is a communicator of which kernels of the program reach the memory of all ranks.
type LSATeam struct {
	Table uintptr // device address of an ncclDevCommWindowTable, which has all registered memory
	Hash  uint64  // any number, but the same on all ranks, and another one in each communicator
	Why   string  // why they do not; "": they do. It is "" on all ranks or on none
}

// A Memory is how much memory a communicator uses on its device, in bytes.
type Memory struct {
	Own int64 // used by it alone
	// Shared is its equal share of what the process's communicators of the device share, and what
	// kernels of the program have of it.
	Shared int64
}

// A State is how far an operation is, and what it waits for.
type State struct {
	Does  Progress
	Ranks []int  // ranks that it waits for, as far as known
	Call  uint64 // Op.Call of the operation, or of the first of its group; 0: unknown
	// Since is set if the operation waits: it has waited for the same messages since this time,
	// at the latest. Graph is the same of an operation of a CUDA graph.
	Since, Graph time.Time
	// Graphs reports whether any operation was captured: if none was, nothing happens without a
	// call.
	Graphs bool
}

// A Progress is how far an enqueued operation is.
type Progress string

// The values of Progress.
const (
	Unknown Progress = ""       // it cannot be determined
	Idle    Progress = "idle"   // there is no operation
	Behind  Progress = "behind" // its stream has not reached it
	Begun   Progress = "begun"  // it waits for other ranks
	Slow    Progress = "slow"   // the device has not answered yet
	Stuck   Progress = "stuck"  // the device does not answer
)

// An Op is an operation on device memory, and its executor.
type Op struct {
	On Executor
	op.Op
	Stream uintptr // the stream that it is enqueued on
	// Also are other streams that Sends and Recvs of this operation were called on. It runs after
	// the work that they contain, and before work that is enqueued on them later.
	Also []uintptr
	Call uint64 // the number of this call, from 1, in the caller's record
}

// A Place is where a rank runs.
type Place struct {
	Host    int // ranks with the same number share a host
	Process uint32
}

// A Config configures an executor.
type Config struct {
	Rank, Size int
	Device     int         // this rank's device, as its process numbers it
	Places     []Place     // by rank
	Env        *choose.Env // everything that choices depend on, besides what executors tell one another
	Log        *debug.Logger
	Host       Host

	// This rank's own settings, which other ranks need not know.
	Timeout       time.Duration
	CheckPointers bool
	// Fallback returns the file of NVIDIA's libnccl.so.2, for what the executor does not do; "":
	// none.
	Fallback func() string
	// Gone reports whether a rank's process has ended, as far as this one sees it.
	Gone func(rank int) bool
	// AsNCCL keeps the promises of NCCL's API: callers may destroy a stream as soon as an
	// operation on it was called, and what is enqueued when the communicator fails stays
	// unfinished until Abort, so that no program takes it for a result.
	AsNCCL bool
	// GraphMixing runs graphs that contain operations, and operations outside, one after the
	// other; GraphOrder the operations within a graph. Both need AsNCCL.
	GraphMixing, GraphOrder bool
	// OneRankPerDevice makes Open fail if two ranks have the same device.
	OneRankPerDevice bool
}

// A Factory creates executors for one kind of device.
type Factory struct {
	// Open is called by all ranks. Everything that may wait, for the other ranks or for work on
	// the device, is done here.
	Open func(context.Context, Config) (Executor, error)
	// Bus returns a device's PCI address.
	Bus func(device int) (string, error)
	// Failed reports whether an error is the driver's: of a call, or because there is no driver or
	// no device. nil: none is.
	Failed func(error) bool
}

// Host is what an executor can use of its communicator.
type Host interface {
	// Exchange passes b to every rank and returns what all ranks passed, by rank. It takes about
	// a millisecond, so Enqueue does not call it.
	Exchange(ctx context.Context, b []byte) ([][]byte, error)
	// Lane opens connections for operations on host memory, separate from those of other lanes.
	// All ranks call it, before the communicator is used.
	Lane(ctx context.Context) (Lane, error)
	// Fail makes the communicator unusable, here and at all other ranks. Any
	// goroutine may call it.
	Fail(err error)
	// Err returns what went wrong with the communicator, or nil.
	Err() error
	// Flipped reports that an operation that was verified has a wrong result: ranks whose GPUs may be at fault,
	// and a sentence for people. Any goroutine may call it.
	Flipped(ranks []int, text string)
}

// A Lane does operations on host memory, in the order in which one goroutine calls them. An
// operation that fails, or that ends because the communicator has failed, returns an error, which
// Host.Err returns as well.
type Lane interface {
	Do(o *op.Op) error
	// Close frees the connections. No Do may be under way. Other ranks may read the memory of
	// failed operations until Close has returned.
	Close() error
}
