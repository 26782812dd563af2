//go:build cuda && cgo

package cuda

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// blocks are the allocations of MemAlloc.
var blocks struct {
	mu sync.Mutex
	at map[uintptr]block
}

// A block is memory that the program allocated.
type block struct {
	dev  *device
	n    int
	free func() error
}

// freed are blocks that were freed while memory was registered. The driver may give their addresses
// to other memory, and a program may free what it has registered (PyTorch's symmetric memory does).
var freed struct {
	mu         sync.Mutex
	registered atomic.Int64 // registrations of all communicators
	count      atomic.Int64 // of blocks that were freed, ever
	last       []freedBlock // the blocks; the last one is number count-1
}

type freedBlock struct{ at, n uint64 }

// noteFreed records a block that is about to be freed.
func noteFreed(at uintptr, n int) {
	if freed.registered.Load() == 0 {
		return
	}
	freed.mu.Lock()
	defer freed.mu.Unlock()
	freed.last = append(freed.last, freedBlock{uint64(at), uint64(n)})
	freed.count.Add(1)
}

// freedSince returns the blocks that were freed after the first n, and how many there were.
func freedSince(n int64) ([]freedBlock, int64) {
	freed.mu.Lock()
	defer freed.mu.Unlock()
	count := freed.count.Load()
	return freed.last[len(freed.last)-int(min(count-n, int64(len(freed.last)))):], count
}

// registrations counts registrations.
func registrations(n int) {
	freed.mu.Lock()
	defer freed.mu.Unlock()
	if freed.registered.Add(int64(n)) == 0 {
		freed.last = nil
	}
}

// ErrNotAllocated: the address to free is not from MemAlloc, or was freed before.
var ErrNotAllocated = errors.New("no memory of this library's begins there")

// MemAlloc returns at least n bytes of zeroed memory on a device. All devices of the process
// that can reach that device may use it. If the device supports it, other processes can map
// the memory through a file descriptor of the driver.
func MemAlloc(ordinal, n int) (uintptr, error) {
	d, err := deviceOf(ordinal)
	if err != nil {
		return 0, err
	}
	var at driver.Ptr
	err = d.in(func() error {
		b := block{dev: d, n: n}
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

// take allocates n bytes by the best method that the device supports.
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

// MemFree frees memory of MemAlloc when all work on its device is done.
func MemFree(at uintptr) error {
	blocks.mu.Lock()
	b, ok := blocks.at[at]
	delete(blocks.at, at)
	blocks.mu.Unlock()
	if !ok {
		return ErrNotAllocated
	}
	noteFreed(at, b.n)
	return b.dev.in(b.free)
}
