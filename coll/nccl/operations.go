//go:build cuda && cgo

package nccl

/*
#cgo noescape nccl_do
#cgo nocallback nccl_do
#include "library.h"
*/
import "C"

import (
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
)

// A RedOp is an ncclRedOp_t: a reduction of elem, or one that PreMulSum made.
type RedOp int32

// Reduction is the RedOp of a reduction. Both have NCCL's values.
func Reduction(red elem.Op) RedOp { return RedOp(red) }

// PreMulSum makes a sum that multiplies what this rank gives by a scalar
// first; scalar is one element of type t. It is for this communicator alone.
func (c *Comm) PreMulSum(scalar []byte, t elem.Type) (RedOp, error) {
	if c.over.Load() {
		return 0, ErrAborted
	}
	var red C.int
	_ = scalar[t.Size()-1]
	err := c.l.check("ncclRedOpCreatePreMulSum", C.nccl_pre_mul_sum(c.l.c, &red, unsafe.Pointer(&scalar[0]), C.int(t), c.place.comm))
	return RedOp(red), err
}

// FreeOp frees what PreMulSum made. Operations may still be under way.
func (c *Comm) FreeOp(red RedOp) error {
	if c.over.Load() {
		return nil
	}
	return c.l.check("ncclRedOpDestroy", C.nccl_op_destroy(c.l.c, C.int(red), c.place.comm))
}

// Do enqueues a collective on a stream (a CUstream) of the communicator's device,
// and returns at once. red takes the place of the operation's own reduction. A
// SendRecv is a group of a Send to the next rank and a Recv from the one before.
func (c *Comm) Do(o *op.Op, red RedOp, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	result := C.nccl_do(c.place, C.enum_nccl_collective(o.Coll), C.uintptr_t(op.Addr(o.Send)), C.uintptr_t(op.Addr(o.Recv)), C.size_t(o.Count),
		C.int(o.Type), C.size_t(o.Type.Size()), C.int(red), C.int(o.Root), C.uintptr_t(stream))
	return c.l.check(calls[o.Coll], result)
}

// calls are what NCCL calls the operations.
var calls = [op.NumCollectives]string{
	op.AllReduce: "ncclAllReduce", op.Broadcast: "ncclBroadcast", op.Reduce: "ncclReduce", op.AllGather: "ncclAllGather", op.ReduceScatter: "ncclReduceScatter",
	op.AllToAll: "ncclAlltoAll", op.Gather: "ncclGather", op.Scatter: "ncclScatter", op.SendRecv: "ncclSend and ncclRecv",
}

// The enumeration in library.h has the order of op's.
var _ = [1]struct{}{}[C.SEND_RECV-C.enum_nccl_collective(op.SendRecv)]
