//go:build cuda && cgo

package nccl

/*
#cgo noescape nccl_all_reduce
#cgo nocallback nccl_all_reduce
#cgo noescape nccl_broadcast
#cgo nocallback nccl_broadcast
#cgo noescape nccl_reduce
#cgo nocallback nccl_reduce
#cgo noescape nccl_all_gather
#cgo nocallback nccl_all_gather
#cgo noescape nccl_reduce_scatter
#cgo nocallback nccl_reduce_scatter
#cgo noescape nccl_send
#cgo nocallback nccl_send
#cgo noescape nccl_recv
#cgo nocallback nccl_recv
#cgo noescape nccl_send_recv
#cgo nocallback nccl_send_recv
#cgo noescape nccl_all_to_all
#cgo nocallback nccl_all_to_all
#cgo noescape nccl_gather
#cgo nocallback nccl_gather
#cgo noescape nccl_scatter
#cgo nocallback nccl_scatter
#include "library.h"
*/
import "C"

import (
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
)

// A RedOp is an ncclRedOp_t: a reduction of elem, or one that PreMulSum made.
type RedOp int32

// Reduction is the RedOp of a reduction. Both have NCCL's values.
func Reduction(op elem.Op) RedOp { return RedOp(op) }

// PreMulSum makes a sum that multiplies what this rank gives by a scalar
// first; scalar is one element of type t. It is for this communicator alone.
func (c *Comm) PreMulSum(scalar []byte, t elem.Type) (RedOp, error) {
	if c.over.Load() {
		return 0, ErrAborted
	}
	var op C.int
	_ = scalar[t.Size()-1]
	err := c.l.check("ncclRedOpCreatePreMulSum", C.nccl_pre_mul_sum(c.l.c, &op, unsafe.Pointer(&scalar[0]), C.int(t), c.place.comm))
	return RedOp(op), err
}

// FreeOp frees what PreMulSum made. Operations may still be under way.
func (c *Comm) FreeOp(op RedOp) error {
	if c.over.Load() {
		return nil
	}
	return c.l.check("ncclRedOpDestroy", C.nccl_op_destroy(c.l.c, C.int(op), c.place.comm))
}

// The operations are enqueued on a stream (a CUstream) of the communicator's
// device, and return at once. send and recv are addresses on the device, counts
// are elements and mean what NCCL's mean: the rank's own share for AllGather,
// ReduceScatter, AllToAll, Gather and Scatter.

// AllReduce leaves the reduction of all ranks' elements on every rank.
func (c *Comm) AllReduce(send, recv uintptr, count int, t elem.Type, op RedOp, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclAllReduce", C.nccl_all_reduce(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.int(op), C.uintptr_t(stream)))
}

// Broadcast copies the root's elements to every rank.
func (c *Comm) Broadcast(send, recv uintptr, count int, t elem.Type, root int, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclBroadcast", C.nccl_broadcast(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.int(root), C.uintptr_t(stream)))
}

// Reduce leaves the reduction of all ranks' elements on the root.
func (c *Comm) Reduce(send, recv uintptr, count int, t elem.Type, op RedOp, root int, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclReduce", C.nccl_reduce(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.int(op), C.int(root), C.uintptr_t(stream)))
}

// AllGather leaves the elements of all ranks, in their order, on every rank.
func (c *Comm) AllGather(send, recv uintptr, count int, t elem.Type, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclAllGather", C.nccl_all_gather(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.uintptr_t(stream)))
}

// ReduceScatter leaves the rank's block of the reduction on each rank.
func (c *Comm) ReduceScatter(send, recv uintptr, count int, t elem.Type, op RedOp, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclReduceScatter", C.nccl_reduce_scatter(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.int(op), C.uintptr_t(stream)))
}

// AllToAll sends block i to rank i, and receives block i from it.
func (c *Comm) AllToAll(send, recv uintptr, count int, t elem.Type, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclAlltoAll", C.nccl_all_to_all(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.size_t(t.Size()), C.uintptr_t(stream)))
}

// Gather leaves the elements of all ranks, in their order, on the root.
func (c *Comm) Gather(send, recv uintptr, count int, t elem.Type, root int, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclGather", C.nccl_gather(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.size_t(t.Size()), C.int(root), C.uintptr_t(stream)))
}

// Scatter sends block i of the root to rank i.
func (c *Comm) Scatter(send, recv uintptr, count int, t elem.Type, root int, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclScatter", C.nccl_scatter(c.place, C.uintptr_t(send), C.uintptr_t(recv), C.size_t(count), C.int(t), C.size_t(t.Size()), C.int(root), C.uintptr_t(stream)))
}

// Send sends to a rank that calls Recv.
func (c *Comm) Send(send uintptr, count int, t elem.Type, to int, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclSend", C.nccl_send(c.place, C.uintptr_t(send), C.size_t(count), C.int(t), C.int(to), C.uintptr_t(stream)))
}

// Recv receives from a rank that calls Send.
func (c *Comm) Recv(recv uintptr, count int, t elem.Type, from int, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclRecv", C.nccl_recv(c.place, C.uintptr_t(recv), C.size_t(count), C.int(t), C.int(from), C.uintptr_t(stream)))
}

// SendRecv is a group of a Send and a Recv.
func (c *Comm) SendRecv(send uintptr, to int, recv uintptr, from, count int, t elem.Type, stream uintptr) error {
	if c.over.Load() {
		return ErrAborted
	}
	return c.l.check("ncclSend and ncclRecv", C.nccl_send_recv(c.place, C.uintptr_t(send), C.int(to), C.uintptr_t(recv), C.int(from), C.size_t(count), C.int(t), C.uintptr_t(stream)))
}
