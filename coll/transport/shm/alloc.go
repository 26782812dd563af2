package shm

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region is memory from Alloc.
type region struct {
	base uintptr
	mem  []byte
	file *os.File
	fd   int
	ino  uint64
}

func (r *region) holds(addr uintptr, n int) bool {
	return addr >= r.base && addr+uintptr(n) <= r.base+uintptr(len(r.mem))
}

// The regions of this process, by address. Readers take no lock.
var (
	regions   atomic.Pointer[[]*region]
	regionsMu sync.Mutex
)

// find is the region that holds n bytes, or nil.
func find(addr uintptr, n int) *region {
	all := regions.Load()
	if all == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(*all, addr, func(r *region, a uintptr) int {
		switch {
		case a < r.base:
			return 1
		case a >= r.base+uintptr(len(r.mem)):
			return -1
		}
		return 0
	})
	if !ok || !(*all)[i].holds(addr, n) {
		return nil
	}
	return (*all)[i]
}

// Alloc returns n bytes of zeroed memory that other ranks of the host can map.
// It is given back with Free, and not collected.
func Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, fmt.Errorf("shm: allocating %d bytes", n)
	}
	size := pageAlign(n)
	f, err := createMemory("assay-alloc", int64(size))
	if err != nil {
		return nil, err
	}
	m, err := mapFile(int(f.Fd()), 0, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		_ = m.unmap()
		return nil, os.NewSyscallError("fstat", err)
	}
	_ = unix.Madvise(m.mem, unix.MADV_HUGEPAGE) // where shared memory may have huge pages
	r := &region{base: uintptr(unsafe.Pointer(&m.mem[0])), mem: m.mem, file: f, fd: int(f.Fd()), ino: st.Ino}
	change(func(all []*region) []*region {
		i, _ := slices.BinarySearchFunc(all, r.base, func(o *region, b uintptr) int {
			if o.base < b {
				return -1
			}
			return 1
		})
		return slices.Insert(all, i, r)
	})
	return m.mem[:n], nil
}

// Free gives back what Alloc returned. No operation may be using it.
func Free(b []byte) error {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	r := find(addr, len(b))
	if r == nil || r.base != addr {
		return fmt.Errorf("shm: freeing memory that is not from Alloc")
	}
	change(func(all []*region) []*region {
		return slices.DeleteFunc(all, func(o *region) bool { return o == r })
	})
	r.file.Close()
	return unix.Munmap(r.mem)
}

// A Handle tells other processes of the host of memory from Alloc.
type Handle struct {
	PIDs, PID, FD, Ino uint64 // PIDs: where the process's number means something
}

// HandleOf gives the handle of what Alloc returned.
func HandleOf(b []byte) (Handle, error) {
	r := find(uintptr(unsafe.Pointer(unsafe.SliceData(b))), len(b))
	if r == nil {
		return Handle{}, fmt.Errorf("shm: memory that is not from Alloc")
	}
	return Handle{PIDs: pidNamespace(), PID: uint64(os.Getpid()), FD: uint64(r.fd), Ino: r.ino}, nil
}

// Open maps the memory of another process, by whole pages, until Close. It
// stays when that process frees it, or ends.
func Open(h Handle) ([]byte, error) {
	if h.PIDs == 0 || h.PIDs != pidNamespace() {
		return nil, fmt.Errorf("shm: process %d is %w", h.PID, errOtherPIDs)
	}
	m, err := mapRegion(int(h.PID), int(h.FD), h.Ino)
	if err != nil {
		return nil, err
	}
	return m.mem, nil
}

// Close unmaps what Open gave.
func Close(b []byte) error { return unix.Munmap(b) }

// mapRegion maps a region of another process, whole.
func mapRegion(pid, fd int, ino uint64) (*mapping, error) {
	f, err := openMemory(pid, fd)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if ino == 0 || st.Ino != ino {
		return nil, fmt.Errorf("descriptor %d of process %d is something else", fd, pid)
	}
	return mapFile(int(f.Fd()), 0, int(st.Size))
}

// change makes a new list of regions from a copy of the old one.
func change(f func([]*region) []*region) {
	regionsMu.Lock()
	defer regionsMu.Unlock()
	var all []*region
	if p := regions.Load(); p != nil {
		all = slices.Clone(*p)
	}
	all = f(all)
	regions.Store(&all)
}
