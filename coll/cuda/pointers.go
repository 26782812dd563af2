//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// checked calls checkPointers if the configuration asks for it.
func checked(cfg *executor.Config, dev *device, o *op.Op) error {
	if !cfg.CheckPointers {
		return nil
	}
	return checkPointers(cfg.Rank, cfg.Size, dev, o)
}

// checkPointers checks that each buffer of an operation is memory that CUDA knows and lies
// within one allocation (NCCL_CHECK_POINTERS). A kernel that uses a bad address loses the
// context.
func checkPointers(rank, ranks int, dev *device, o *op.Op) error {
	err := dev.in(func() error {
		if o.Coll == op.SendRecv {
			for _, t := range o.Transfers {
				if err := checkPointer(t.Data); err != nil {
					return err
				}
			}
			return nil
		}
		return errors.Join(checkPointer(o.Send), checkPointer(o.Recv), checkPointer(o.Norm.Residual), checkPointer(o.Norm.Weight))
	})
	if err != nil {
		return &op.Error{Code: op.InvalidArgument, Rank: rank, Op: o.Coll.String(), Peer: op.NoPeer, Err: err}
	}
	return nil
}

func checkPointer(b []byte) error {
	n := len(b)
	if n == 0 {
		return nil
	}
	p := driver.Ptr(op.Addr(b))
	info, err := driver.PointerInfo(p)
	if err != nil {
		return err
	}
	if info.Ordinal < 0 {
		return fmt.Errorf("%v is not an address that CUDA knows", p)
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
