//go:build cuda && cgo

package cuda

import (
	"errors"
	"sync"

	"github.com/assay-hpc/assay/coll/cuda/driver"
)

// blocks are what MemAlloc gave.
var blocks struct {
	mu sync.Mutex
	at map[uintptr]block
}

// A block is memory of a program's own.
type block struct {
	dev  *device
	free func() error
}

// ErrNotAllocated: memory is to be freed that MemAlloc did not give, or that was freed.
var ErrNotAllocated = errors.New("no memory of this library's begins there")

// MemAlloc returns n bytes at least of zeroed memory on a device, which all devices of the
// process that can reach it may use. Where the device can, other processes can have it,
// too, by a file descriptor of the driver's.
func MemAlloc(ordinal, n int) (uintptr, error) {
	d, err := deviceOf(ordinal)
	if err != nil {
		return 0, err
	}
	var at driver.Ptr
	err = d.in(func() error {
		b := block{dev: d}
		if at, b.free, err = d.take(n); err != nil {
			return err
		}
		if err := clearMemory(at, n); err != nil {
			return errors.Join(err, b.free())
		}
		blocks.mu.Lock()
		defer blocks.mu.Unlock()
		if blocks.at == nil {
			blocks.at = map[uintptr]block{}
		}
		blocks.at[uintptr(at)] = b
		return nil
	})
	if err != nil {
		return 0, err
	}
	return uintptr(at), nil
}

// take allocates n bytes in the way that the device can best.
func (d *device) take(n int) (driver.Ptr, func() error, error) {
	if !d.info.CanVirtual {
		return d.plain(n)
	}
	visible, err := driver.Devices()
	if err != nil {
		return 0, nil, err
	}
	var others []int
	for _, o := range visible {
		if o.Ordinal != d.ctx.Ordinal() && d.ctx.CanAccessPeer(o.Ordinal) {
			others = append(others, o.Ordinal)
		}
	}
	v, err := driver.NewVirtual(d.info, others, n)
	switch {
	case errors.Is(err, driver.ErrNotSupported), errors.Is(err, driver.ErrNotPermitted): // a virtual machine may forbid it
		return d.plain(n)
	case err != nil:
		return 0, nil, err
	}
	return v.Ptr, func() error { return errors.Join(d.ctx.Synchronize(), v.Free()) }, nil
}

func (d *device) plain(n int) (driver.Ptr, func() error, error) {
	p, err := driver.Malloc(n)
	return p, func() error { return driver.Free(p) }, err
}

// MemFree gives back what MemAlloc gave, when all that runs on its device is done.
func MemFree(at uintptr) error {
	blocks.mu.Lock()
	b, ok := blocks.at[at]
	delete(blocks.at, at)
	blocks.mu.Unlock()
	if !ok {
		return ErrNotAllocated
	}
	return b.dev.in(b.free)
}
