package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/transport"
)

// A long message in memory from Alloc need not be copied into a slot: its entry then
// holds the location, and the receiver reduces or copies the message from there. A
// receiver in another process maps that memory at the first message from it. The sender
// must not change the memory until all receivers have released the message, or until its
// own endpoint is closed: Close marks the tails, and a receiver that read the message too
// late finds the mark when it releases the message.
//
// The kernel's process_vm_readv could read any memory, but moves 8 to 10 GB/s, where two
// copies through slots, running in parallel, move more (Zen 4, 2026).

// directMin is the length from which this is faster than a copy into a slot: below it,
// the receiver's cache misses cost more than the copy.
const directMin = 2 << 10

// directFlag, set in an entry's length, marks a message that is in the sender's memory.
const directFlag = 1 << 31

// A regionOffset is the payload of an entry with directFlag: the location of the message.
type regionOffset struct {
	gen uint64 // generation of the region in the sender's process
	off uint64 // offset in the region
	ino uint64 // inode of its file
	fd  uint64 // the file's descriptor in the sender's process
}

const placeSize = int(unsafe.Sizeof(regionOffset{}))

// placeOf returns the place of p, if it is in memory that receivers can map.
func placeOf(p []byte) (at regionOffset, ok bool) {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	r := regionOf(addr, len(p))
	if r == nil {
		return regionOffset{}, false
	}
	return regionOffset{gen: r.gen, off: uint64(addr - r.base), ino: r.ino, fd: uint64(r.fd)}, true
}

// point sends the location of a message instead of its bytes.
func (t *tx) point(at regionOffset, n int, h transport.Header) bool {
	slot := t.Reserve(placeSize)
	if slot == nil {
		return false
	}
	*(*regionOffset)(unsafe.Pointer(unsafe.SliceData(slot))) = at
	t.cur.set(n|directFlag, h, 0)
	t.publish()
	t.posted = t.next
	return true
}

// A view is an rx's access to its sender's memory.
type view struct {
	e    *Endpoint
	from int
	pid  int // 0: the sender is in this process
	gen  uint64
	m    *mapping // the region of generation gen, held by the view; may be nil
}

// at returns the n bytes at a place.
func (v *view) at(p *regionOffset, n int) ([]byte, error) {
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

// leave drops the region that the view holds.
func (v *view) leave() {
	if v.m != nil {
		_ = v.m.drop()
		v.m = nil
	}
}

// remote identifies a peer's memory from Alloc.
type remote struct {
	from int
	gen  uint64
}

// see returns a peer's memory, held for the caller. The endpoint also holds it, and drops
// it after the peer has freed it, when it next maps new memory.
func (e *Endpoint) see(from, pid int, p *regionOffset) (m *mapping, err error) {
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
