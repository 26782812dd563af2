// Package coll is a collective communication library modeled on NCCL: AllReduce, Broadcast,
// Reduce, AllGather, ReduceScatter, AllToAll, Gather, Scatter, Send and Recv among ranks that are
// goroutines of one process, processes of one host, or processes of many hosts.
//
// # Communicators
//
// One rank calls GetUniqueID and passes the result to the others by any means. Then every rank
// calls CommInitRank with the same ID and number of ranks, and its own rank:
//
//	id, err := coll.GetUniqueID(cfg)          // rank 0
//	…
//	comm, err := coll.CommInitRank(ctx, n, id, rank, cfg)
//	err = comm.AllReduce(coll.Of(grad), coll.Of(grad), len(grad), coll.Float32, coll.Sum)
//	err = comm.Destroy()
//
// CommInitAll does all of it for ranks in one process. A communicator is used
// by one goroutine at a time; a second one gets ErrBusy.
//
// # Operations
//
// An operation returns when this rank's part is done: its receive buffer contains the result and
// its send buffer may be changed. All ranks call the same operations in the same order with the
// same count, type, reduction and root. Ranks that differ get an error that names the rank and
// the difference, and the communicator is then unusable. Counts are elements: of the whole vector
// for AllReduce, Broadcast and Reduce, of one rank's part for the others. An operation with a
// count of 0 does nothing.
//
// In place: AllReduce, Broadcast and Reduce with the same buffer for both;
// AllGather and Gather with the rank's part of the receive buffer as send
// buffer; ReduceScatter and Scatter with the rank's part of the send buffer as
// receive buffer. Other overlaps are errors.
//
// Results of AllReduce are the same bits on every rank, and the same from run
// to run for the same ranks, size and settings. With ASSAY_SAME_BITS=1 results of all
// reductions depend on the ranks' data only: elements are reduced in the order of the ranks.
//
// # Groups
//
// Operations between Group.Start and Group.End run together at the outermost End. Those of
// several communicators run concurrently, so that one goroutine can act as several ranks. Those
// of one communicator run one after the other without returning in between, so that each may use
// the result of the one before. Sends and Recvs run all at once, except that those on host memory
// begin after the calls before them that use the same memory: a group gives what one call after
// the other would give, if a Send did not wait for its Recv. A Recv that a rank calls before its
// own Send to itself comes directly after that.
//
// # Device memory
//
// A communicator that is created with a Config.Device, and with cuda.Factory (package coll/cuda,
// build tag cuda) as Config.GPUs, also works on device memory (see the function Device). Such an
// operation is enqueued on the communicator's CUDA stream (SetStream) and returns at once; errors
// that happen later are returned by AsyncError and by later calls. It can be captured in a CUDA
// graph. Destroy waits for enqueued operations; the stream must still exist. A group enqueues its
// operations on device memory first: for each communicator the collectives in their order, then
// the Sends and Recvs as one operation. The order of communicators is the same on all ranks,
// whatever that of the calls is; a rank that makes the same calls without a group, on one stream,
// may wait for the others for ever. All buffers of one call must be of the same kind. Barrier
// covers host memory only.
//
// # Failure
//
// No operation waits forever. When a rank dies, fails, or is silent for too long, every operation
// in progress at every rank returns an *Error with the rank and the reason, and so do all later
// ones. Abort ends the waiting from another goroutine.
//
// # Settings
//
// NCCL's environment variables are read where they make sense on host memory: see docs/knobs.md.
package coll

import (
	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/elem"
)

// A Type is the type of an element.
type Type = elem.Type

// The element types.
const (
	Int8       = elem.Int8
	Uint8      = elem.Uint8
	Int32      = elem.Int32
	Uint32     = elem.Uint32
	Int64      = elem.Int64
	Uint64     = elem.Uint64
	Float16    = elem.Float16
	Float32    = elem.Float32
	Float64    = elem.Float64
	BFloat16   = elem.BFloat16
	Float8E4M3 = elem.Float8E4M3
	Float8E5M2 = elem.Float8E5M2
)

// An Op is a reduction.
type Op = elem.Op

// The reductions.
const (
	Sum  = elem.Sum
	Prod = elem.Prod
	Max  = elem.Max
	Min  = elem.Min
	Avg  = elem.Avg
)

// A UniqueID identifies a communicator that is to be created, and lets its ranks prove to one
// another that they belong to it. It is a secret: any process that knows it can join.
type UniqueID = bootstrap.ID
