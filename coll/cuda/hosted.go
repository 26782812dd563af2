//go:build cuda && cgo

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/transport/shm"
	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// Devices that do not reach one another still all reach host memory: the windows are there,
// pinned. A kernel then writes into other ranks' windows and reads its own over the device's
// link to the host. Everything else is the same as with windows on devices. Processes share
// the windows as memory of shm.Alloc.

// hostable returns why windows cannot be in host memory, or "" if they can. All ranks come to
// the same result.
func hostable(cfg executor.Config) string {
	switch {
	case cfg.Size > maxRanks:
		return fmt.Sprintf("windows are for %d ranks at most", maxRanks)
	case len(cfg.Env.Hosts) > 1:
		return "the processor's memory is not that of all ranks"
	case cfg.Env.SHMDisable:
		return "NCCL_SHM_DISABLE does not allow windows in the processor's memory"
	}
	return ""
}

// newHosted allocates n bytes of host memory for other ranks to reach.
func newHosted(n int) (_ *loan, err error) {
	l := &loan{kind: shared}
	if l.bytes, err = shm.Alloc(n); err != nil {
		return nil, err
	}
	if l.ptr, err = driver.HostRegister(l.bytes); err != nil {
		return nil, errors.Join(err, shm.Free(l.bytes))
	}
	l.free = func() error { return errors.Join(driver.HostUnregister(l.bytes), shm.Free(l.bytes)) }
	h, err := shm.HandleOf(l.bytes)
	if err != nil {
		return nil, errors.Join(err, l.free())
	}
	l.offer = offer{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(l.bytes)))), Bytes: uint64(n), Hosted: 1}
	if _, err = binary.Encode(l.offer.Handle[:], binary.LittleEndian, h); err != nil {
		return nil, errors.Join(err, l.free())
	}
	return l, nil
}

// importHosted maps host memory of another process. Memory that one rank has registered can be
// used by all ranks of its process.
func importHosted(o offer) (driver.Ptr, func() error, error) {
	var h shm.Handle
	if _, err := binary.Decode(o.Handle[:], binary.LittleEndian, &h); err != nil {
		return 0, nil, err
	}
	b, err := shm.Open(h)
	if err != nil {
		return 0, nil, err
	}
	p, err := driver.HostRegister(b)
	if err != nil {
		return 0, nil, errors.Join(err, shm.Close(b))
	}
	return p, func() error { return errors.Join(driver.HostUnregister(b), shm.Close(b)) }, nil
}
