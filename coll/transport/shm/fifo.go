package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/transport"
)

// The memory of a connection: a counter for each reader, a ring of entries,
// and slots for what does not fit in an entry.
//
//	0                 tail of reader 0: how many messages it has released
//	line              tail of reader 1 …
//	readers*line      entry 0: header, small payload
//	… + line          entry 1 …
//	… + numEntries    slot 0
//	… + stride        slot 1 …
//
// An entry's header: message number (8 bytes, written last: it marks the message as
// present), length, operation number, sign, slot index. A small payload follows the
// header in the same lines, so that it costs one transfer between processors. While there
// are free entries, nothing else passes between the processors: the writer reads the
// tails only after it has used all the entries that it knows to be free.
//
// There are many entries, so that a rank can run ahead with small messages of peers that
// may not even be scheduled on a processor. There are few slots, so that long messages
// stay in the cache.
const (
	line       = 128 // a pair of cache lines, which processors fetch together
	cacheLine  = 64
	header     = 24
	inline     = line - header // bytes of the largest small message
	numEntries = 64
	numSlots   = 8 // as many as NCCL's FIFOs have
)

// geometry is the layout of a connection's memory.
type geometry struct {
	readers int
	slot    int // bytes of payload a slot takes
	stride  int
}

func newGeometry(readers, slot int) geometry {
	// The extra line keeps the starts of the slots from sharing one cache set.
	return geometry{readers: readers, slot: slot, stride: (slot+line-1)/line*line + line}
}

func (g geometry) size() int { return (g.readers+numEntries)*line + numSlots*g.stride }

// entry returns the entry of message number m, counted from 0; slotAt returns the address
// of slot i.
func (g geometry) entry(mem unsafe.Pointer, m uint64) fifoEntry {
	return fifoEntry{unsafe.Add(mem, (g.readers+int(m%numEntries))*line)}
}

func (g geometry) slotAt(mem unsafe.Pointer, i uint32) unsafe.Pointer {
	return unsafe.Add(mem, (g.readers+numEntries)*line+int(i%numSlots)*g.stride)
}

// A fifoEntry is a message's place in memory.
type fifoEntry struct{ p unsafe.Pointer }

func (e fifoEntry) number() *uint64 { return (*uint64)(e.p) }

func (e fifoEntry) payload(n int) []byte { return unsafe.Slice((*byte)(unsafe.Add(e.p, header)), n) }

func (e fifoEntry) set(n int, h transport.Header, slot uint32) {
	*(*uint32)(unsafe.Add(e.p, 8)) = uint32(n)
	*(*uint32)(unsafe.Add(e.p, 12)) = h.Seq
	*(*uint32)(unsafe.Add(e.p, 16)) = h.Sign
	*(*uint32)(unsafe.Add(e.p, 20)) = slot
}

func (e fifoEntry) get() (n int, h transport.Header, slot uint32) {
	n = int(*(*uint32)(unsafe.Add(e.p, 8)))
	h.Seq = *(*uint32)(unsafe.Add(e.p, 12))
	h.Sign = *(*uint32)(unsafe.Add(e.p, 16))
	return n, h, *(*uint32)(unsafe.Add(e.p, 20))
}

// A tx is the writing end. It implements transport.Tx.
type tx struct {
	mem      unsafe.Pointer
	g        geometry
	next     uint64           // number of the next message, from 0
	released uint64           // messages that all readers have released, as far as known
	cur      fifoEntry        // the reserved entry
	resv     int              // bytes reserved
	slot     uint32           // the next slot
	users    [numSlots]uint64 // the last message in each slot, numbered from 1
	bells    []*Bell          // the readers', in the order of their tails

	direct bool   // readers may read this rank's memory in place
	posted uint64 // last message sent from this rank's own memory, numbered from 1
}

func (t *tx) MaxMessage() int { return t.g.slot }
func (t *tx) Slots() int      { return numSlots }
func (t *tx) Direct() bool    { return t.direct }
func (t *tx) Idle() bool      { return t.done(t.posted) }

func (t *tx) tail(reader int) *uint64 { return (*uint64)(unsafe.Add(t.mem, reader*line)) }

// revoked, set in a tail, means that the writer has closed: messages in the writer's own
// memory that were not released before are void.
const revoked = 1 << 63

func (t *tx) revoke() {
	for i := range t.g.readers {
		atomic.OrUint64(t.tail(i), revoked)
	}
}

// done reports whether all readers have released message number m, from 1.
func (t *tx) done(m uint64) bool {
	if m <= t.released {
		return true
	}
	low := ^uint64(0)
	for i := range t.g.readers {
		low = min(low, atomic.LoadUint64(t.tail(i))&^revoked)
	}
	t.released = low
	return m <= low
}

func (t *tx) Reserve(n int) []byte {
	t.check("Reserve", n)
	if t.next >= numEntries && !t.done(t.next-numEntries+1) {
		return nil
	}
	t.cur, t.resv = t.g.entry(t.mem, t.next), n
	if n <= inline {
		return t.cur.payload(n)
	}
	if !t.done(t.users[t.slot%numSlots]) {
		return nil
	}
	return unsafe.Slice((*byte)(t.g.slotAt(t.mem, t.slot)), n)
}

func (t *tx) check(call string, n int) {
	if n > t.g.slot {
		panic(fmt.Sprintf("shm: %s of %d bytes; messages are at most %d bytes", call, n, t.g.slot))
	}
}

func (t *tx) Commit(n int, h transport.Header) {
	if n <= inline {
		if t.resv > inline { // the payload is in a slot, but the reader expects it in the entry
			copy(t.cur.payload(n), unsafe.Slice((*byte)(t.g.slotAt(t.mem, t.slot)), n))
		}
		t.cur.set(n, h, 0)
		t.publish()
		return
	}
	t.cur.set(n, h, t.slot%numSlots)
	t.users[t.slot%numSlots] = t.next + 1
	t.slot++
	t.publish()
	t.fetch(t.g.slotAt(t.mem, t.slot), slotAhead)
}

// publish makes the current entry visible to the readers and rings their bells.
func (t *tx) publish() {
	t.next++
	atomic.StoreUint64(t.cur.number(), t.next)
	for _, b := range t.bells {
		b.Ring()
	}
	// The cache lines of the next entry are still with the reader, which read them last.
	// Fetching them now, while this rank waits for something else, takes that latency off
	// the path of the next message.
	t.fetch(t.g.entry(t.mem, t.next).p, line)
}

// slotAhead is how much of the next slot is prefetched: the first lines are enough to
// hide the latency of the others.
const slotAhead = 512

func (t *tx) fetch(p unsafe.Pointer, n int) {
	for at := 0; at < n; at += cacheLine {
		prefetch(unsafe.Add(p, at))
	}
}

func (t *tx) Post(p []byte, h transport.Header) bool {
	t.check("Post", len(p))
	if t.direct && len(p) >= directMin {
		if at, ok := placeOf(p); ok {
			return t.point(at, len(p), h)
		}
	}
	buf := t.Reserve(len(p))
	if buf == nil {
		return false
	}
	elem.Copy(buf, p)
	t.Commit(len(p), h)
	return true
}

// An rx is a reading end. It implements transport.Rx.
type rx struct {
	mem   unsafe.Pointer
	g     geometry
	tail  *uint64
	told  uint64 // releases already added to tail
	next  uint64 // number of the message expected, from 0
	long  uint64 // released messages that lay in slots
	bell  *Bell  // the writer's
	view  view
	fault *transport.Fault
	want  []byte // the posted buffer

	missed bool
}

func (r *rx) MaxMessage() int { return r.g.slot }
func (r *rx) Direct() bool    { return r.fault != nil }

func (r *rx) Peek() ([]byte, transport.Header, bool) {
	e := r.g.entry(r.mem, r.next)
	if atomic.LoadUint64(e.number()) != r.next+1 {
		return nil, transport.Header{}, false
	}
	n, h, slot := e.get()
	switch {
	case n <= inline:
		return e.payload(n), h, true
	case n&directFlag == 0: // a corrupt length must not reach beyond the slot
		return unsafe.Slice((*byte)(r.g.slotAt(r.mem, slot)), min(n, r.g.slot)), h, true
	case r.fault == nil:
		return nil, h, true
	case atomic.LoadUint64(r.tail)&revoked != 0:
		r.miss()
		return nil, h, false
	}
	p, err := r.view.at((*regionOffset)(unsafe.Pointer(unsafe.SliceData(e.payload(placeSize)))), n&^directFlag)
	if err != nil {
		r.fault.Set(r.lost("its message cannot be read: " + err.Error()))
		return nil, h, false
	}
	return p, h, true
}

func (r *rx) lost(what string) error {
	return &transport.PeerError{Rank: r.view.from, By: r.view.e.o.Rank, What: what}
}

// miss reports, once, a message that its sender withdrew when it closed.
func (r *rx) miss() {
	if !r.missed {
		r.missed = true
		r.fault.SetLate(r.lost("it has closed its connections with a message under way"))
	}
}

// Release reports a message in the writer's own memory to the writer at once, because the
// writer waits for it. It reports other messages in batches.
func (r *rx) Release() bool {
	n, _, _ := r.g.entry(r.mem, r.next).get()
	r.next++
	direct := n&directFlag != 0
	tell := direct || r.next%entriesTold == 0
	if n > inline {
		r.long++
		tell = tell || r.long%slotsTold == 0
	}
	if !tell {
		return true
	}
	tail := atomic.AddUint64(r.tail, r.next-r.told)
	r.told = r.next
	r.bell.Ring()
	if direct && tail&revoked != 0 {
		r.miss()
		r.next-- // Peek stays at this message
		return false
	}
	return true
}

// Releases are reported in batches of this size, so in the worst case a writer has
// numEntries-entriesTold+1 entries and numSlots-slotsTold+1 slots; schedules need two.
const (
	entriesTold = 16
	slotsTold   = 4
)

func (r *rx) Post(p []byte) { r.want = p }

func (r *rx) Done() (transport.Header, int, bool) {
	p, h, ok := r.Peek()
	if !ok {
		return h, 0, false
	}
	if len(p) == len(r.want) { // otherwise the caller sees from the length that it is of another operation
		elem.Copy(r.want, p)
	}
	r.want = nil
	return h, len(p), r.Release()
}
