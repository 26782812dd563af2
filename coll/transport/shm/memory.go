package shm

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mapping is a piece of memory that several ranks see. It stays mapped until
// all that hold it have dropped it.
type mapping struct {
	mem  []byte
	held atomic.Int32
}

func (m *mapping) at(off int) unsafe.Pointer { return unsafe.Pointer(&m.mem[off]) }

func mapFile(fd int, off int64, n int) (*mapping, error) {
	mem, err := unix.Mmap(fd, off, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of shared memory: %w", n, err)
	}
	m := &mapping{mem: mem}
	m.held.Store(1)
	return m, nil
}

// hold keeps the memory mapped until drop; false: it is not mapped any more.
func (m *mapping) hold() bool {
	for {
		n := m.held.Load()
		if n == 0 || m.held.CompareAndSwap(n, n+1) {
			return n > 0
		}
	}
}

func (m *mapping) drop() error {
	if m.held.Add(-1) > 0 {
		return nil
	}
	return unix.Munmap(m.mem)
}

// createMemory makes n bytes of memory without a name: it goes away with the
// last process that has it open, however that ends. Pages exist from their
// first use on, so n may be far larger than what is used.
func createMemory(name string, n int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("creating shared memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(n); err != nil {
		f.Close()
		return nil, fmt.Errorf("creating %d bytes of shared memory: %w (is a file size limit set? see ulimit -f)", n, err)
	}
	return f, nil
}

// openMemory opens the memory of another process, which must belong to the
// same user and be visible in /proc: containers on one host that do not share
// their process IDs do not see one another.
func openMemory(pid, fd int) (*os.File, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the shared memory of process %d: %w", pid, err)
	}
	return f, nil
}

// pageAlign rounds up to whole pages.
func pageAlign(n int) int {
	p := os.Getpagesize()
	return (n + p - 1) / p * p
}
