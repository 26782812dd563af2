//go:build cuda && cgo

package cuda

import (
	"fmt"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/schedule"
)

// checkPointers looks whether what an operation is to use is memory of a
// device, all of it of one allocation (NCCL_CHECK_POINTERS). A kernel that
// finds out otherwise loses the context.
func checkPointers(rank, ranks int, dev *device, op *coll.DeviceOp) error {
	err := dev.in(func() error {
		if op.Coll == schedule.SendRecv {
			for _, t := range op.Transfers {
				if err := checkPointer(t.Addr, t.Bytes); err != nil {
					return err
				}
			}
			return nil
		}
		in, out := partsHere(op, rank, ranks)
		if err := checkPointer(op.Send, in*bytesOf(op)); err != nil {
			return err
		}
		return checkPointer(op.Recv, out*bytesOf(op))
	})
	if err != nil {
		return &coll.Error{Code: coll.InvalidArgument, Rank: rank, Op: op.Coll.String(), Peer: coll.NoPeer, Err: err}
	}
	return nil
}

func checkPointer(addr uintptr, n int) error {
	if n == 0 {
		return nil
	}
	p := driver.Ptr(addr)
	info, err := driver.PointerInfo(p)
	if err != nil {
		return err
	}
	if info.Ordinal < 0 {
		return fmt.Errorf("%v is no address that CUDA knows", p)
	}
	base, size, err := driver.AddressRange(p)
	if err != nil || !info.IsDevice { // the host's pinned memory has no range
		return nil
	}
	if left := int(base) + size - int(p); left < n {
		return fmt.Errorf("%d bytes at %v are used, and its allocation ends after %d", n, p, left)
	}
	return nil
}
