package shm

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mapping is memory that several ranks share, mapped into this process. It is
// reference-counted and stays mapped until every holder has called drop.
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

// hold keeps the memory mapped until drop. It returns false if the memory is no longer
// mapped.
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

// createMemory creates n bytes of memory without a name: it is freed when the last
// process that has it open exits, in whatever way. Pages are allocated on first use, so n
// may be far larger than the memory in use.
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

// openMemory opens the memory of another process, which must belong to the same user and
// be visible in /proc: containers on one host with separate PID namespaces cannot open
// each other's memory.
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
