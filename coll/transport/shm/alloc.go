package shm

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region is memory from Alloc. Its file has one more page after the memory, which
// records whether the owner has freed it.
type region struct {
	*mapping
	base uintptr
	size int    // of the memory
	gen  uint64 // distinguishes it from earlier regions of the process, perhaps at the same address
	file *os.File
	fd   int
	ino  uint64
}

// generations counts regions.
var generations atomic.Uint64

// memory is the mapping of a region without its last page.
func (m *mapping) memory() []byte { return m.mem[: len(m.mem)-os.Getpagesize() : len(m.mem)] }

// freed points to a word that is not 0 once the owner has freed the region.
func (m *mapping) freed() *uint32 { return (*uint32)(m.at(len(m.mem) - os.Getpagesize())) }

// The regions of this process, by address. Readers take no lock.
var (
	regions   atomic.Pointer[[]*region]
	regionsMu sync.Mutex
)

// regionOf returns the region that contains the n bytes at addr, or nil.
func regionOf(addr uintptr, n int) *region {
	all := regions.Load()
	if all == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(*all, addr, func(r *region, a uintptr) int {
		switch {
		case a < r.base:
			return 1
		case a >= r.base+uintptr(r.size):
			return -1
		}
		return 0
	})
	if !ok || addr+uintptr(n) > (*all)[i].base+uintptr((*all)[i].size) {
		return nil
	}
	return (*all)[i]
}

// see returns the mapping of this process's region with generation gen, held for the
// caller.
func see(gen uint64) (*mapping, error) {
	if all := regions.Load(); all != nil {
		i := slices.IndexFunc(*all, func(r *region) bool { return r.gen == gen })
		if i >= 0 && (*all)[i].hold() {
			return (*all)[i].mapping, nil
		}
	}
	return nil, errors.New("it was freed")
}

// Alloc returns n bytes of zeroed memory that other ranks of the host can map. It is
// released with Free, not by the garbage collector.
func Alloc(n int) ([]byte, error) {
	if n <= 0 {
		return nil, fmt.Errorf("shm: allocating %d bytes", n)
	}
	size := pageAlign(n)
	whole := size + os.Getpagesize()
	f, err := createMemory("assay-alloc", int64(whole))
	if err != nil {
		return nil, err
	}
	m, err := mapFile(int(f.Fd()), 0, whole)
	if err != nil {
		f.Close()
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		_ = m.drop()
		return nil, os.NewSyscallError("fstat", err)
	}
	_ = unix.Madvise(m.mem, unix.MADV_HUGEPAGE) // where shared memory may have huge pages
	r := &region{mapping: m, base: uintptr(m.at(0)), size: size, gen: generations.Add(1), file: f, fd: int(f.Fd()), ino: st.Ino}
	change(func(all []*region) []*region {
		i, _ := slices.BinarySearchFunc(all, r.base, func(o *region, b uintptr) int { return cmp.Compare(o.base, b) })
		return slices.Insert(all, i, r)
	})
	return m.mem[:n:size], nil
}

// Free releases memory from Alloc, on all ranks that have mapped it. Ranks that still
// read it, as those of an aborted communicator may, find other bytes there, and learn
// that their message is void.
func Free(b []byte) error {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	r := regionOf(addr, len(b))
	if r == nil || r.base != addr {
		return fmt.Errorf("shm: freeing memory that is not from Alloc")
	}
	change(func(all []*region) []*region {
		return slices.DeleteFunc(all, func(o *region) bool { return o == r })
	})
	atomic.StoreUint32(r.freed(), 1)
	// Other processes unmap it when they next map new memory. Where the file system
	// cannot punch holes, the pages stay allocated until then.
	_ = unix.Fallocate(r.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(r.size))
	r.file.Close()
	return r.drop()
}

// A Handle identifies memory from Alloc to other processes of the host.
type Handle struct {
	PIDs, PID, FD, Ino uint64 // PIDs: the PID namespace in which PID is valid
}

// HandleOf returns the handle of memory from Alloc.
func HandleOf(b []byte) (Handle, error) {
	r := regionOf(uintptr(unsafe.Pointer(unsafe.SliceData(b))), len(b))
	if r == nil {
		return Handle{}, fmt.Errorf("shm: memory that is not from Alloc")
	}
	return Handle{PIDs: pidNamespace(), PID: uint64(os.Getpid()), FD: uint64(r.fd), Ino: r.ino}, nil
}

// Open maps memory of another process, in whole pages, until Close. It stays mapped if
// that process exits, or frees the memory, which clears it.
func Open(h Handle) ([]byte, error) {
	if h.PIDs == 0 || h.PIDs != pidNamespace() {
		return nil, fmt.Errorf("shm: process %d is %w", h.PID, errOtherPIDs)
	}
	m, err := mapRegion(int(h.PID), int(h.FD), h.Ino)
	if err != nil {
		return nil, err
	}
	return m.memory(), nil
}

// Close unmaps memory from Open.
func Close(b []byte) error { return unix.Munmap(b[:cap(b)]) }

// mapRegion maps a whole region of another process.
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
	if ino == 0 || st.Ino != ino || st.Size <= int64(os.Getpagesize()) {
		return nil, fmt.Errorf("descriptor %d of process %d is something else", fd, pid)
	}
	return mapFile(int(f.Fd()), 0, int(st.Size))
}

// change replaces the list of regions with f of a copy of it.
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
