//go:build cuda && cgo

package cuda

import (
	"fmt"
	"slices"
	"sync"

	"github.com/assay-hpc/assay/internal/gpu/driver"
)

// An arena holds the memory that the communicators of a device share: memory that ranks reach
// in one another's processes, and pinned memory. The driver frees and unmaps memory only when
// everything that runs on the device has ended; that may include a kernel of another
// communicator, which waits for a rank that waits for this one. So a communicator leaves its
// memory to the next one, and the memory is freed when no communicator is left.
type arena struct {
	mu          sync.Mutex
	users       int     // communicators
	idle        []*loan // used by no communicator
	imports     map[importKey]imported
	copyBuffers [2]*loan
	parts       [copyParts]struct {
		lent bool
		left *departure // like loan.left
	}
}

// A kind of memory.
type kind byte

const (
	onDevice  kind = iota
	virtual        // on the device, and other processes get a file descriptor
	shared         // host memory that other processes can map
	pinned         // pinned host memory
	described      // on the device, of windows of the program's kernels
)

// ofDevice reports whether it is memory of the device.
func (k kind) ofDevice() bool { return k == onDevice || k == virtual || k == described }

// A loan is memory that an arena lends to a communicator.
type loan struct {
	kind
	ptr   driver.Ptr
	bytes []byte // the memory, if it is host memory
	offer offer
	free  func() error
	left  *departure // set if the other ranks were not seen to leave
	kept  bool       // other processes still map it
}

// An importKey identifies memory of another process.
type importKey struct {
	process [16]byte
	handle  [64]byte
	buffer  uint64 // offer.Buffer
}

type imported struct {
	ptr   driver.Ptr
	close func() error
	uses  int // of borrow
}

// enter begins a communicator's use of the arena. enter and leave are called with the device's
// context current.
func (a *arena) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == 0 {
		a.sweep()
	}
	a.users++
}

// take lends n idle bytes, or else n bytes that make allocates.
func (a *arena) take(k kind, n int, make func(n int) (*loan, error)) (*loan, error) {
	a.mu.Lock()
	i := slices.IndexFunc(a.idle, func(l *loan) bool { return l.kind == k && int(l.offer.Bytes) == n && l.left.ended() })
	if i >= 0 {
		l := a.idle[i]
		a.idle = slices.Delete(a.idle, i, i+1)
		a.mu.Unlock()
		return l, nil
	}
	a.mu.Unlock()
	return make(n)
}

// give takes a loan back. left is until when others may still write to it, nil if they do not;
// kept: they have it mapped.
func (a *arena) give(l *loan, left *departure, kept bool) {
	if l == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l.left, l.kept = left, l.kept || kept
	a.idle = append(a.idle, l)
}

// open maps memory of another process, or returns its existing mapping.
func (a *arena) open(key importKey, open func() (driver.Ptr, func() error, error)) (driver.Ptr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m, ok := a.imports[key]; ok {
		return m.ptr, nil
	}
	p, unmap, err := open()
	if err != nil {
		return 0, err
	}
	if a.imports == nil {
		a.imports = map[importKey]imported{}
	}
	a.imports[key] = imported{ptr: p, close: unmap}
	return p, nil
}

// borrow is open for memory that is unmapped when everybody who has borrowed it has given it back.
func (a *arena) borrow(key importKey, open func() (driver.Ptr, func() error, error)) (driver.Ptr, error) {
	p, err := a.open(key, open)
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.imports[key]
	m.uses++
	a.imports[key] = m
	return p, nil
}

// giveBorrowed gives memory back. What else runs on the device may delay it.
func (a *arena) giveBorrowed(key importKey) error {
	a.mu.Lock()
	m, ok := a.imports[key]
	m.uses--
	if ok {
		a.imports[key] = m
	}
	a.mu.Unlock()
	if !ok || m.uses > 0 {
		return nil
	}
	return a.unmapOne(key)
}

// unmap unmaps the memory of other processes, unless another communicator needs
// it. It reports whether nothing is mapped.
func (a *arena) unmap() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == 1 {
		for _, m := range a.imports {
			_ = m.close()
		}
		a.imports = nil
	}
	return len(a.imports) == 0
}

// unmapOne unmaps memory of another process.
func (a *arena) unmapOne(key importKey) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.imports[key]
	if !ok {
		return nil
	}
	delete(a.imports, key)
	return m.close()
}

// leave ends a communicator's use of the arena.
func (a *arena) leave() {
	a.unmap()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users--; a.users == 0 {
		a.sweep()
	}
}

// sweep frees unused memory, except what others may still write to or have mapped.
func (a *arena) sweep() {
	a.idle = slices.DeleteFunc(a.idle, func(l *loan) bool {
		if l.kept || !l.left.ended() {
			return false
		}
		_ = l.free()
		return true
	})
	for i, l := range a.copyBuffers {
		if l != nil && !l.kept && a.unwritten(i) {
			_ = l.free()
			a.copyBuffers[i] = nil
		}
	}
}

// unwritten reports whether nobody writes to a copy buffer any more.
func (a *arena) unwritten(buffer int) bool {
	for i := range a.parts {
		if b, _, _ := copyPart(i); b == buffer && !a.parts[i].left.ended() {
			return false
		}
	}
	return true
}

// Copies by copy engines arrive in copy buffers, which all communicators of a device share:
// the first communicator gets the first copy buffer, and others get a part of the second one.
const (
	copyParts       = 1 + 2 + 8
	copyBufferBytes = 512 << 20
	// tokenBytes follow a copy buffer for each of the parts, see copier.token.
	tokenBytes = 4 << 10
)

// copyPart returns the copy buffer that a part is in, the part's offset there and its length.
func copyPart(i int) (buffer, at, n int) {
	switch i -= 1; {
	case i < 0:
		return 0, 0, copyBufferBytes
	case i < 2:
		return 1, i * copyBufferBytes / 4, copyBufferBytes / 4
	}
	return 1, copyBufferBytes/2 + (i-2)*copyBufferBytes/16, copyBufferBytes / 16
}

// takeCopyPart lends the largest free part of a copy buffer. make allocates a copy buffer.
func (a *arena) takeCopyPart(make func(n int) (*loan, error)) (part int, o offer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.parts {
		if p := &a.parts[i]; p.lent || !p.left.ended() {
			continue
		}
		buffer, at, n := copyPart(i)
		if a.copyBuffers[buffer] == nil {
			if a.copyBuffers[buffer], err = make(copyBufferBytes + copyParts*tokenBytes); err != nil {
				return 0, o, err
			}
		}
		a.parts[i].lent = true
		o = a.copyBuffers[buffer].offer
		o.At, o.Bytes = uint64(at), uint64(n)
		return i, o, nil
	}
	return 0, o, fmt.Errorf("%d communicators of this device have copy buffers", copyParts)
}

// token returns the memory for barriers that belongs to a part of a copy buffer.
func (a *arena) token(part int) driver.Ptr {
	a.mu.Lock()
	defer a.mu.Unlock()
	buffer, _, _ := copyPart(part)
	return a.copyBuffers[buffer].ptr + driver.Ptr(tokenOf(part))
}

// tokenOf returns the offset of a part's memory for barriers in its copy buffer. The state of
// rings is behind what barriers exchange.
func tokenOf(part int) int { return copyBufferBytes + part*tokenBytes }

const ringStateAt = 1 << 10

// partOf returns which part of a copy buffer an offer is.
func partOf(o offer) int {
	for i := range copyParts {
		if _, at, n := copyPart(i); uint64(at) == o.At && uint64(n) == o.Bytes {
			return i
		}
	}
	panic("cuda: an offer is no part of a copy buffer")
}

// giveCopyPart takes a part back, as give does with loans.
func (a *arena) giveCopyPart(part int, left *departure, kept bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[part].lent, a.parts[part].left = false, left
	buffer, _, _ := copyPart(part)
	a.copyBuffers[buffer].kept = a.copyBuffers[buffer].kept || kept
}

// share is each communicator's equal share, in bytes, of the device memory that they have in
// common: copy buffers and idle memory. The shares of all communicators add up to all of it.
func (a *arena) share() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var n uint64
	for _, l := range append(a.copyBuffers[:], a.idle...) {
		if l != nil && l.kind.ofDevice() {
			n += l.offer.Bytes
		}
	}
	return int64(n) / int64(max(a.users, 1))
}

// newPinned allocates n bytes of pinned host memory.
func newPinned(n int) (*loan, error) {
	p, err := driver.HostAlloc(n)
	if err != nil {
		return nil, err
	}
	return &loan{kind: pinned, ptr: p.Ptr, bytes: p.Bytes, offer: offer{Bytes: uint64(n)}, free: p.Free}, nil
}

// word lends a few cache lines of zeroed pinned memory, through which devices and the host
// communicate.
func (a *arena) word() (*loan, error) {
	l, err := a.take(pinned, pinnedBytes, newPinned)
	if err == nil {
		clear(l.bytes)
	}
	return l, err
}
