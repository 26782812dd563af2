//go:build cuda && cgo

package nccl

/*
#cgo noescape nccl_do
#cgo nocallback nccl_do
#include <stdlib.h>
#include "library.h"
*/
import "C"

import (
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A RedOp is an ncclRedOp_t: a reduction of elem, or one that PreMulSum created.
type RedOp int32

// Reduction returns the RedOp of a reduction. Both have NCCL's values.
func Reduction(red elem.Op) RedOp { return RedOp(red) }

// PreMulSum creates a sum that first multiplies this rank's input by a scalar; scalar is one
// element of type t. It is for this communicator only.
func (c *Comm) PreMulSum(scalar []byte, t elem.Type) (RedOp, error) {
	if c.over.Load() {
		return 0, ErrAborted
	}
	_ = scalar[t.Size()-1]
	p := C.CBytes(scalar)
	defer C.free(p)
	return c.preMulSum(uintptr(p), t, hostImmediate)
}

// PreMulSumAt is PreMulSum with a scalar in the memory of the communicator's device,
// which is read when operations run.
func (c *Comm) PreMulSumAt(address uintptr, t elem.Type) (RedOp, error) {
	if c.over.Load() {
		return 0, ErrAborted
	}
	return c.preMulSum(address, t, onDevice)
}

// Values of ncclScalarResidence_t.
const (
	onDevice      = 0
	hostImmediate = 1
)

func (c *Comm) preMulSum(scalar uintptr, t elem.Type, residence C.int) (RedOp, error) {
	var red C.int
	err := c.l.check("ncclRedOpCreatePreMulSum", C.nccl_pre_mul_sum(c.l.c, &red, C.uintptr_t(scalar), C.int(t), residence, c.place.comm))
	return RedOp(red), err
}

// FreeOp frees a reduction of PreMulSum. Operations may still be under way.
func (c *Comm) FreeOp(red RedOp) error {
	if c.over.Load() {
		return nil
	}
	return c.l.check("ncclRedOpDestroy", C.nccl_op_destroy(c.l.c, C.int(red), c.place.comm))
}

// Do enqueues a collective on a stream (a CUstream) of the communicator's device, and returns at
// once. red replaces the operation's own reduction. A SendRecv is a group of a Send to the next
// rank and a Recv from the previous one.
func (c *Comm) Do(o *op.Op, red RedOp, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	result := C.nccl_do(c.place, C.enum_nccl_collective(o.Coll), C.uintptr_t(op.Addr(o.Send)), C.uintptr_t(op.Addr(o.Recv)), C.size_t(o.Count),
		C.int(o.Type), C.size_t(o.Type.Size()), C.int(red), C.int(o.Root), C.uintptr_t(stream))
	return c.l.check(calls[o.Coll], result)
}

// Exchange enqueues Sends and Recvs as a group, and returns at once.
func (c *Comm) Exchange(transfers []op.Transfer, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	if err := c.l.GroupStart(); err != nil {
		return err
	}
	var wrong error
	for _, t := range transfers {
		at, n, peer := C.uintptr_t(op.Addr(t.Data)), C.size_t(len(t.Data)), C.int(t.Peer)
		if t.Send {
			wrong = c.l.check("ncclSend", C.nccl_send(c.place, at, n, peer, C.uintptr_t(stream)))
		} else {
			wrong = c.l.check("ncclRecv", C.nccl_recv(c.place, at, n, peer, C.uintptr_t(stream)))
		}
		if wrong != nil {
			break
		}
	}
	end := c.l.GroupEnd() // the group is ended in any case, and the first error counts
	if wrong != nil {
		return wrong
	}
	return end
}

// calls are NCCL's names of the operations.
var calls = [op.NumCollectives]string{
	op.AllReduce: "ncclAllReduce", op.Broadcast: "ncclBroadcast", op.Reduce: "ncclReduce", op.AllGather: "ncclAllGather", op.ReduceScatter: "ncclReduceScatter",
	op.AllToAll: "ncclAlltoAll", op.Gather: "ncclGather", op.Scatter: "ncclScatter", op.SendRecv: "ncclSend and ncclRecv",
}

// The enumeration in library.h has the order of op's.
var _ = [1]struct{}{}[C.SEND_RECV-C.enum_nccl_collective(op.SendRecv)]
