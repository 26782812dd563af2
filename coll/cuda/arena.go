//go:build cuda && cgo

package cuda

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/cuda/driver"
)

// An arena is what the communicators of a device share of memory: what ranks reach
// in one another's processes, and what is pinned. The driver gives memory back, and takes it out of
// address spaces, when all that runs on the device has ended: a kernel of
// another communicator, perhaps, that waits for a rank which waits for this one. So
// what a communicator leaves is the next one's, and goes when there are none.
type arena struct {
	mu          sync.Mutex
	users       int     // communicators
	idle        []*loan // what no communicator has
	imports     map[importKey]imported
	copyBuffers [2]*loan
	parts       [copyParts]struct {
		lent bool
		left time.Time // as of loans
	}
}

// A kind of memory.
type kind byte

const (
	onDevice kind = iota
	shared        // the processor's, which other processes can map
	pinned        // the processor's
)

// A loan is memory that a communicator has from an arena.
type loan struct {
	kind
	ptr   driver.Ptr
	bytes []byte // where it is, if it is the processor's
	offer offer
	free  func() error
	// Other ranks may write to it for retireFor from then on: they were not
	// seen to leave.
	left time.Time
	kept bool // other processes still map it
}

// An importKey is memory of another process.
type importKey struct {
	process [16]byte
	handle  [64]byte
}

type imported struct {
	ptr   driver.Ptr
	close func() error
}

// retireFor is longer than any kernel takes that was told to stop, and than
// the telling.
const retireFor = time.Minute

// enter begins a communicator's use of the arena. This and leave are called with the
// device's context current.
func (a *arena) enter() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == 0 {
		a.sweep()
	}
	a.users++
}

// take lends n bytes that are there, or that make makes.
func (a *arena) take(k kind, n int, make func(n int) (*loan, error)) (*loan, error) {
	a.mu.Lock()
	i := slices.IndexFunc(a.idle, func(l *loan) bool { return l.kind == k && int(l.offer.Bytes) == n && l.usable() })
	if i >= 0 {
		l := a.idle[i]
		a.idle = slices.Delete(a.idle, i, i+1)
		a.mu.Unlock()
		return l, nil
	}
	a.mu.Unlock()
	return make(n)
}

func (l *loan) usable() bool { return time.Since(l.left) > retireFor }

// give takes a loan back. left: when others may still have written to it; kept:
// they have it mapped.
func (a *arena) give(l *loan, left time.Time, kept bool) {
	if l == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l.left, l.kept = left, l.kept || kept
	a.idle = append(a.idle, l)
}

// open maps memory of another process, or finds it mapped.
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
	a.imports[key] = imported{p, unmap}
	return p, nil
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

// sweep frees what is not used.
func (a *arena) sweep() {
	a.idle = slices.DeleteFunc(a.idle, func(l *loan) bool {
		if l.kept || !l.usable() {
			return false
		}
		_ = l.free()
		return true
	})
	for i, l := range a.copyBuffers {
		if l != nil && !l.kept && l.usable() {
			_ = l.free()
			a.copyBuffers[i] = nil
		}
	}
}

// Rooms, in which copies by copy engines arrive, are for all communicators of a device
// together: the first gets the first copy buffer, and others a part of the second one.
const (
	copyParts       = 1 + 2 + 8
	copyBufferBytes = 512 << 20
	// tokenBytes are behind a copy buffer for each of its parts, see copier.token.
	tokenBytes = 4 << 10
)

// copyPart says in which copy buffer a part is, where in it, and how long it is.
func copyPart(i int) (buffer, at, n int) {
	switch i -= 1; {
	case i < 0:
		return 0, 0, copyBufferBytes
	case i < 2:
		return 1, i * copyBufferBytes / 4, copyBufferBytes / 4
	}
	return 1, copyBufferBytes/2 + (i-2)*copyBufferBytes/16, copyBufferBytes / 16
}

// takeCopyPart lends the largest part of a copy buffer that there is. make makes a copy buffer.
func (a *arena) takeCopyPart(make func(n int) (*loan, error)) (part int, o offer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.parts {
		if p := &a.parts[i]; p.lent || time.Since(p.left) <= retireFor {
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

// token is memory that belongs to a part of a copy buffer.
func (a *arena) token(part int) driver.Ptr {
	a.mu.Lock()
	defer a.mu.Unlock()
	buffer, _, _ := copyPart(part)
	return a.copyBuffers[buffer].ptr + driver.Ptr(copyBufferBytes+part*tokenBytes)
}

// giveCopyPart takes a part back, as give does with loans.
func (a *arena) giveCopyPart(part int, left time.Time, kept bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[part].lent, a.parts[part].left = false, left
	buffer, _, _ := copyPart(part)
	if l := a.copyBuffers[buffer]; left.After(l.left) {
		l.left = left
	}
	a.copyBuffers[buffer].kept = a.copyBuffers[buffer].kept || kept
}

// share is what each communicator has of the device's memory that they have in
// common: copy buffers, and what none of them uses. So all of them together have all of it.
func (a *arena) share() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var n uint64
	for _, l := range append(a.copyBuffers[:], a.idle...) {
		if l != nil && l.kind == onDevice {
			n += l.offer.Bytes
		}
	}
	return int64(n) / int64(max(a.users, 1))
}

// newPinned allocates n bytes of the processor's memory.
func newPinned(n int) (*loan, error) {
	p, err := driver.HostAlloc(n)
	if err != nil {
		return nil, err
	}
	return &loan{kind: pinned, ptr: p.Ptr, bytes: p.Bytes, offer: offer{Bytes: uint64(n)}, free: p.Free}, nil
}

// word lends zeroed memory of a few cache lines, which devices and the processor tell
// one another things in.
func (a *arena) word() (*loan, error) {
	l, err := a.take(pinned, pinnedBytes, newPinned)
	if err == nil {
		clear(l.bytes)
	}
	return l, err
}
