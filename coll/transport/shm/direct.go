package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport"
)

// A long message that lies in memory from Alloc need not be copied into a slot:
// the slot then says where it is, and the receiver reduces or copies it from
// there. Receivers in other processes map that memory when they first hear of
// it. The sender has to leave it alone until all have released the message, or
// until its endpoint is closed: that marks the tails, and a receiver finds the
// mark when it releases a message that it has looked at too late.
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
	gen uint64 // which memory of the sender's process
	off uint64 // in it
	ino uint64 // of its file
	fd  uint64 // the file's descriptor in the sender's process
}

const placeSize = int(unsafe.Sizeof(place{}))

// placeOf is where the receivers can see p.
func placeOf(p []byte) (at place, ok bool) {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	r := find(addr, len(p))
	if r == nil {
		return place{}, false
	}
	return place{gen: r.gen, off: uint64(addr - r.base), ino: r.ino, fd: uint64(r.fd)}, true
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
	gen  uint64
	m    *mapping // the memory of that number, which the view holds; may be nil
}

// at returns the n bytes at a place.
func (v *view) at(p *place, n int) ([]byte, error) {
	if v.m == nil || p.gen != v.gen {
		m, err := v.e.see(v.from, v.pid, p)
		if err != nil {
			return nil, err
		}
		v.leave()
		v.gen, v.m = p.gen, m
	}
	mem := v.m.memory()
	if p.off > uint64(len(mem)) || uint64(n) > uint64(len(mem))-p.off {
		return nil, fmt.Errorf("it is at %d of %d bytes", p.off, len(mem))
	}
	return mem[p.off : p.off+uint64(n) : p.off+uint64(n)], nil
}

// leave drops what the view holds.
func (v *view) leave() {
	if v.m != nil {
		_ = v.m.drop()
		v.m = nil
	}
}

// remote is memory from Alloc of a peer.
type remote struct {
	from int
	gen  uint64
}

// see holds memory of a peer for the caller. The endpoint holds it, too, until
// it next has to do with new memory and finds that this was freed.
func (e *Endpoint) see(from, pid int, p *place) (m *mapping, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := remote{from, p.gen}
	if m = e.remotes[k]; m == nil {
		for k, old := range e.remotes {
			if atomic.LoadUint32(old.freed()) != 0 {
				delete(e.remotes, k)
				_ = old.drop()
			}
		}
		if pid == 0 {
			m, err = see(p.gen)
		} else {
			m, err = mapRegion(pid, int(p.fd), p.ino)
		}
		if err != nil {
			return nil, err
		}
		e.remotes[k] = m
	}
	m.hold()
	return m, nil
}
