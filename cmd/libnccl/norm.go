//go:build cuda && cgo

package main

// #include "front/engine.h"
import "C"

import (
	"unsafe"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// assay_all_reduce_norm is coll.Comm.AllReduceNorm for programs that use libnccl.so.2:
// docs/libnccl.md shows the call. A group does not collect it.
//
//export assay_all_reduce_norm
func assay_all_reduce_norm(handle C.uintptr_t, send, recv, residual, weight unsafe.Pointer, rows, row C.size_t, of C.int, eps C.float, stream unsafe.Pointer, text *C.char) (code C.int) {
	const call = "assay_all_reduce_norm"
	defer guard(call, text, &code)
	c, err := using(call, handle)
	if err != nil {
		return result(err, text)
	}
	t := elem.Type(of)
	switch {
	case of < 0 || of > 255 || !t.Norms():
		return result(wrong(op.InvalidArgument, call, "data type %d is none of ncclFloat16, ncclBfloat16 and ncclFloat32", of), text)
	case rows > 1<<30 || row > 1<<24: // no address can be so far behind another
		return result(wrong(op.InvalidArgument, call, "%d rows of %d elements are too many", rows, row), text)
	}
	defer driver.Save().Restore()
	done := false
	c.calls.Lock()
	defer c.release(&done)
	if err := c.made.SetStream(uintptr(stream)); err != nil {
		done = true
		return result(err, text)
	}
	count := int(rows) * int(row)
	memory := func(p unsafe.Pointer, n int) coll.Buffer { return coll.Device(uintptr(p), n*t.Size()) }
	err = c.made.AllReduceNorm(memory(send, count), memory(recv, count), count, t, coll.Norm{
		Residual: memory(residual, count), Weight: memory(weight, int(row)), Row: int(row), Eps: float32(eps),
	})
	done = true
	return result(err, text)
}
