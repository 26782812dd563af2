package shm

import (
	"fmt"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport"
)

// A long message that lies in memory which its receivers can see need not be
// copied into a slot: the slot then says where it is, and the receiver reduces
// or copies it from there. Receivers in the same process see everything, those
// in others what Alloc has allocated, which they map when they first hear of
// it. The sender has to leave the memory alone until all have released the
// message.
//
// The kernel's process_vm_readv would reach any memory, but moves 8 to 10 GB/s
// where two copies through slots, side by side, move more (Zen 4, 2026).

// directMin is the length from which this is faster than a copy into a slot:
// below, the receiver's cache misses cost more than the copy.
const directMin = 2 << 10

// directFlag marks the length of a message that is not in its slot.
const directFlag = 1 << 31

// A place is what the slot of such a message holds.
type place struct {
	addr uint64 // in the sender's process
	off  uint64 // in the memory below
	ino  uint64 // the memory, as its file's inode; 0: it is not Alloc's
	fd   uint64 // its descriptor in the sender's process
}

const placeSize = int(unsafe.Sizeof(place{}))

// visible finds where the receivers can see p.
func (t *tx) visible(p []byte) (at place, ok bool) {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if t.recent == nil || !t.recent.holds(addr, len(p)) {
		if r := find(addr, len(p)); r != nil {
			t.recent = r
		} else {
			return place{addr: uint64(addr)}, t.within && !raceEnabled
		}
	}
	r := t.recent
	return place{addr: uint64(addr), off: uint64(addr - r.base), ino: r.ino, fd: uint64(r.fd)}, true
}

// point sends where p lies.
func (t *tx) point(at place, n int, h transport.Header) bool {
	slot := t.Reserve(placeSize)
	if slot == nil {
		return false
	}
	*(*place)(unsafe.Pointer(unsafe.SliceData(slot))) = at
	t.cur.set(n|directFlag, h, 0)
	t.publish()
	t.posted = t.next
	return true
}

// A view is how an rx sees its sender's memory.
type view struct {
	e    *Endpoint
	from int
	pid  int // 0: the sender is in this process
	ino  uint64
	mem  []byte // the whole of that memory
}

// at returns the n bytes at a place.
func (v *view) at(p *place, n int) ([]byte, error) {
	if v.pid == 0 {
		return unsafe.Slice((*byte)(pointer(p.addr)), n), nil
	}
	if p.ino != v.ino {
		mem, err := v.e.mapRemote(v.from, v.pid, p)
		if err != nil {
			return nil, err
		}
		v.ino, v.mem = p.ino, mem
	}
	if p.off > uint64(len(v.mem)) || uint64(n) > uint64(len(v.mem))-p.off {
		return nil, fmt.Errorf("it is at %d of %d bytes", p.off, len(v.mem))
	}
	return v.mem[p.off : p.off+uint64(n) : p.off+uint64(n)], nil
}

// pointer is the address of memory that another goroutine holds on to while
// this one reads it.
func pointer(addr uint64) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr))
}

// remote is memory of another process.
type remote struct {
	from int
	ino  uint64
}

// mapRemote maps memory that a peer has allocated, once. It stays mapped until
// the endpoint closes.
func (e *Endpoint) mapRemote(from, pid int, p *place) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := remote{from, p.ino}
	if m := e.remotes[k]; m != nil {
		return m.mem, nil
	}
	m, err := mapRegion(pid, int(p.fd), p.ino)
	if err != nil {
		return nil, err
	}
	e.remotes[k] = m
	e.maps = append(e.maps, m)
	return m.mem, nil
}
