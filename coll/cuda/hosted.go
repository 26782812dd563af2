//go:build cuda && cgo

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/assay-hpc/assay/coll/cuda/driver"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/transport/shm"
)

// Where devices do not reach one another, they all still reach the memory of
// the host: windows are there, pinned. A kernel then writes into the windows of
// others and reads its own over the device's link to the host, and all else is
// as with windows on devices. Processes share them as those of shm.Alloc.

// hostable says why windows cannot be in the processor's memory; "" when they
// can be. All ranks come to the same.
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

// newHosted allocates n bytes of the processor's memory, for other ranks to reach.
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
	l.offer = offer{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(l.bytes)))), Bytes: uint64(n)}
	if _, err = binary.Encode(l.offer.Handle[:], binary.LittleEndian, h); err != nil {
		return nil, errors.Join(err, l.free())
	}
	return l, nil
}

// importHosted maps memory of another process. What one rank has registered, all
// of its process can use.
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
