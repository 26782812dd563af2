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

// offerHosted allocates the rank's own window of n bytes in the processor's
// memory.
func (w *windows) offerHosted(n int) (o offer, err error) {
	b, err := shm.Alloc(n)
	if err != nil {
		return o, err
	}
	w.free = func() error { return shm.Free(b) }
	if w.own, err = driver.HostRegister(b); err != nil {
		return o, err
	}
	w.free = func() error { return errors.Join(driver.HostUnregister(b), shm.Free(b)) }
	h, err := shm.HandleOf(b)
	if err != nil {
		return o, err
	}
	o.Addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	_, err = binary.Encode(o.Handle[:], binary.LittleEndian, h)
	return o, err
}

// openHosted is open for windows in the processor's memory. What one rank has
// registered, all of its process can use.
func (w *windows) openHosted(cfg executor.Config, _ *device, all []identity, offers []offer) (err error) {
	w.at = make([]driver.Ptr, cfg.Size)
	for r, o := range offers {
		switch {
		case r == cfg.Rank:
			w.at[r] = w.own
		case all[r].Process == process():
			w.at[r], err = driver.HostPtr(o.Addr)
		default:
			w.at[r], err = w.importHosted(o)
		}
		if err != nil {
			return fmt.Errorf("the window of rank %d: %w", r, err)
		}
	}
	return nil
}

// importHosted maps a window of another process.
func (w *windows) importHosted(o offer) (driver.Ptr, error) {
	var h shm.Handle
	if _, err := binary.Decode(o.Handle[:], binary.LittleEndian, &h); err != nil {
		return 0, err
	}
	b, err := shm.Open(h)
	if err != nil {
		return 0, err
	}
	p, err := driver.HostRegister(b)
	if err != nil {
		return 0, errors.Join(err, shm.Close(b))
	}
	w.imported = append(w.imported, func() error { return errors.Join(driver.HostUnregister(b), shm.Close(b)) })
	return p, nil
}
