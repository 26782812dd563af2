package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/transport"
)

// The memory of a connection: a line with a counter for each reader, then the
// slots.
//
//	0                 tail of reader 0: how many messages it has released
//	line              tail of reader 1 …
//	readers*line      slot 0: header, payload
//	… + stride        slot 1 …
//
// A slot's header and a small payload share a cache line: number of the
// message (8 bytes, written last: it says that the message is there), length
// and operation number, sign. Nothing but the message itself passes between
// the processors when there are free slots: the writer looks at the tails only
// when its own count of free slots is used up.
const (
	line       = 128 // two cache lines: processors fetch them in pairs
	cacheLine  = 64
	slotHeader = 24
	inline     = cacheLine - slotHeader // payloads up to here stand behind the header, others in the next line
	numSlots   = 8                      // credits, as in NCCL's FIFOs
)

// geometry is where things are in a connection's memory.
type geometry struct {
	readers int
	slot    int // bytes of payload a slot takes
	stride  int
}

func newGeometry(readers, slot int) geometry {
	// Slots begin with a pair of lines, which processors fetch together. The
	// extra pair keeps the headers of all slots out of one set of the cache.
	return geometry{readers: readers, slot: slot, stride: (cacheLine+slot+line-1)/line*line + line}
}

func (g geometry) size() int { return g.readers*line + numSlots*g.stride }

// A slotAt is the place of a slot in memory.
type slotAt struct{ p unsafe.Pointer }

func (s slotAt) number() *uint64 { return (*uint64)(s.p) }

func (s slotAt) payload(n int) []byte {
	off := cacheLine
	if n <= inline {
		off = slotHeader
	}
	return unsafe.Slice((*byte)(unsafe.Add(s.p, off)), n)
}

func (s slotAt) setHeader(n int, h transport.Header) {
	*(*uint32)(unsafe.Add(s.p, 8)) = uint32(n)
	*(*uint32)(unsafe.Add(s.p, 12)) = h.Seq
	*(*uint32)(unsafe.Add(s.p, 16)) = h.Sign
}

func (s slotAt) header() (n int, h transport.Header) {
	n = int(*(*uint32)(unsafe.Add(s.p, 8)))
	h.Seq = *(*uint32)(unsafe.Add(s.p, 12))
	h.Sign = *(*uint32)(unsafe.Add(s.p, 16))
	return n, h
}

// slotIn returns the place of message number m, from 0.
func slotIn(mem unsafe.Pointer, g geometry, m uint64) slotAt {
	return slotAt{unsafe.Add(mem, g.readers*line+int(m%numSlots)*g.stride)}
}

// A tx is the writing end. It implements transport.Tx.
type tx struct {
	mem   unsafe.Pointer
	g     geometry
	next  uint64 // number of the next message, from 0
	limit uint64 // messages below this one have a free slot
	cur   slotAt // reserved, if resv
	resv  int
	bells []*Bell // the readers', in the order of their tails

	direct bool    // readers may look at this rank's memory
	within bool    // all of them are in this process
	posted uint64  // the last message that lies there, from 1
	recent *region // where the last one was
}

func (t *tx) MaxMessage() int { return t.g.slot }
func (t *tx) Slots() int      { return numSlots }
func (t *tx) Direct() bool    { return t.direct }

func (t *tx) Idle() bool {
	return t.posted+numSlots <= t.limit || t.lowest() >= t.posted
}

func (t *tx) Reserve(n int) []byte {
	if t.next >= t.limit && !t.refill() {
		return nil
	}
	t.cur, t.resv = slotIn(t.mem, t.g, t.next), n
	return t.cur.payload(n)
}

// refill reads the readers' tails.
func (t *tx) refill() bool {
	t.limit = t.lowest() + numSlots
	return t.next < t.limit
}

// lowest is how many messages all readers have released.
func (t *tx) lowest() uint64 {
	low := ^uint64(0)
	for i := range t.g.readers {
		low = min(low, atomic.LoadUint64((*uint64)(unsafe.Add(t.mem, i*line))))
	}
	return low
}

func (t *tx) Commit(n int, h transport.Header) {
	if n <= inline && t.resv > inline {
		// Reserved more than a small payload and filled less: move it to where
		// the reader looks for it.
		copy(t.cur.payload(n), t.cur.payload(t.resv)[:n])
	}
	t.cur.setHeader(n, h)
	t.publish(n)
}

// publish makes the reserved slot, of which n bytes were written, a message.
func (t *tx) publish(n int) {
	t.next++
	atomic.StoreUint64(t.cur.number(), t.next)
	for _, b := range t.bells {
		b.ring()
	}
	// The reader has the line of the next slot since it last read it. Fetching
	// it now, while this rank waits for something else, takes that time out of
	// the next message's way.
	next := slotIn(t.mem, t.g, t.next).p
	for at := 0; at <= min(n, prefetchMax); at += cacheLine {
		prefetch(unsafe.Add(next, at))
	}
}

// prefetchMax bounds what is fetched of the next slot: of a long message the
// first lines are enough to hide the way to the others.
const prefetchMax = 512

func (t *tx) Post(p []byte, h transport.Header) bool {
	if t.direct && len(p) >= directMin {
		if at, ok := t.visible(p); ok {
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
	next  uint64 // number of the message expected, from 0
	bell  *Bell  // the writer's
	view  view
	fault *transport.Fault
	want  []byte // posted for
}

func (r *rx) MaxMessage() int { return r.g.slot }
func (r *rx) Direct() bool    { return r.fault != nil }

func (r *rx) Peek() ([]byte, transport.Header, bool) {
	s := slotIn(r.mem, r.g, r.next)
	if atomic.LoadUint64(s.number()) != r.next+1 {
		return nil, transport.Header{}, false
	}
	n, h := s.header()
	if n&directFlag == 0 {
		return s.payload(min(n, r.g.slot)), h, true // a damaged length must not lead outside the slot
	}
	if r.fault == nil {
		return nil, h, true
	}
	p, err := r.view.at((*place)(unsafe.Pointer(unsafe.SliceData(s.payload(placeSize)))), n&^directFlag)
	if err != nil {
		r.fault.Set(&transport.PeerError{Rank: r.view.from, By: r.view.e.o.Rank, What: "its message cannot be read: " + err.Error()})
		return nil, h, false
	}
	return p, h, true
}

// Release tells the writer of every few slots only, but of one that points to
// the writer's memory at once: it waits for that.
func (r *rx) Release() {
	s := slotIn(r.mem, r.g, r.next)
	n, _ := s.header()
	r.next++
	if n&directFlag != 0 || r.next%releaseEvery == 0 {
		atomic.StoreUint64(r.tail, r.next)
		r.bell.ring()
	}
}

// releaseEvery leaves a writer numSlots-releaseEvery+1 slots in the worst
// case, of which schedules need two.
const releaseEvery = 4

func (r *rx) Post(p []byte) { r.want = p }

func (r *rx) Done() (transport.Header, int, bool) {
	p, h, ok := r.Peek()
	if !ok {
		return h, 0, false
	}
	if len(p) == len(r.want) { // else the caller finds that it is of another operation
		elem.Copy(r.want, p)
	}
	r.want = nil
	r.Release()
	return h, len(p), true
}
