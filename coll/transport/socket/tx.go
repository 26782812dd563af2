package socket

import (
	"fmt"
	"io"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// A Tx is the sending end of a connection.
//
//	Reserve, Commit ──▶ ring of entries ──▶ deal: pieces ──▶ streams ──▶ kernel
//	Post ─────────────▶   (slots many)       in order         (write)
//
// All of it happens within the caller's calls; a stream with a full kernel buffer keeps
// its piece until the next call.
type Tx struct {
	conn
	maxMessage int
	out        []outbound
	helpers    []*helper

	ring         [slots]outgoing
	first, count int      // the entries in use
	dealt        int      // how many of them, from the first on, are fully assigned to streams
	next         uint32   // number of the next message
	free         [][]byte // memory of unused slots; the last used is on top, because it is in the cache
	reserved     []byte   // memory of the slot that Reserve returned: header and message
}

// An outgoing is a message that the kernel has not fully accepted yet.
type outgoing struct {
	header header
	slot   []byte // its memory, header and message, or nil
	data   []byte
	begun  bool
	off    int // bytes assigned to streams
	flying int // pieces that streams are sending
}

// An outbound is a stream of a Tx and the piece that it sends.
type outbound struct {
	fd         int
	helper     *helper      // writes instead of the caller; may be nil
	state      atomic.Int32 // whether the helper or the caller owns the stream
	err        error        // the helper's error, in state done
	owner      *outgoing
	head, body []byte // the rest of the piece, in this order
	buf        [headerSize]byte
	stall      stall
}

func newTx(e *Endpoint, peer, maxMessage int) *Tx {
	return &Tx{conn: conn{e: e, peer: peer}, maxMessage: maxMessage, free: make([][]byte, 0, slots+1)}
}

// Owner of a stream that has a helper.
const (
	idle int32 = iota // the caller; there is no piece
	busy              // the helper
	done              // the caller; the piece is sent, or err says why not
)

// open sets up the connection from its streams, and starts their helpers.
func (t *Tx) open(fds []int) error {
	t.out = make([]outbound, len(fds))
	for k, fd := range fds {
		t.out[k].fd = fd
	}
	var err error
	t.helpers, err = t.e.share(fds, unix.EPOLLOUT|unix.EPOLLRDHUP, func(from, to int) bool { return t.help(t.out[from:to]) })
	for _, h := range t.helpers {
		for k := h.from; k < h.to; k++ {
			t.out[k].helper = h
		}
	}
	return err
}

// help is a helper's step: it writes to its streams, and reports whether bytes moved.
func (t *Tx) help(streams []outbound) (moved bool) {
	for k := range streams {
		s := &streams[k]
		if s.state.Load() != busy {
			continue
		}
		before := len(s.head) + len(s.body)
		sent, err := s.write()
		moved = moved || len(s.head)+len(s.body) < before
		if sent || err != nil {
			s.err = err
			s.state.Store(done)
			moved = true
			signal(t.e.wake)
		}
	}
	return moved
}

// MaxMessage is the length of the longest message, in bytes.
func (t *Tx) MaxMessage() int { return t.maxMessage }

// Slots is the number of messages that the sender buffers, in addition to the kernel's
// buffers.
func (t *Tx) Slots() int { return slots }

// Direct is true: large messages are sent directly from their memory.
func (t *Tx) Direct() bool { return true }

// Reserve implements transport.Tx. The first use of a slot, or of a size, allocates its
// memory.
func (t *Tx) Reserve(n int) []byte {
	if n > t.maxMessage {
		panic(fmt.Sprintf("socket: Reserve(%d); messages are at most %d bytes", n, t.maxMessage))
	}
	t.mu.Lock()
	var p []byte
	if t.credit() {
		p = t.slot(n)[headerSize : headerSize+n]
	}
	t.unlock()
	return p
}

// credit reports whether a message can be added.
func (t *Tx) credit() bool {
	if t.gone {
		t.failed(io.EOF)
	}
	if t.count == slots {
		t.push()
	}
	return !t.dead() && t.count < slots
}

// slot returns reserved memory for a message of n bytes.
func (t *Tx) slot(n int) []byte {
	if t.reserved == nil && len(t.free) > 0 {
		t.reserved = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	}
	if need := headerSize + padded(n); len(t.reserved) < need {
		t.reserved = make([]byte, headerSize+max(1<<bits.Len(uint(padded(n))), small))
	}
	return t.reserved
}

// Commit implements transport.Tx: it tries to send at once.
func (t *Tx) Commit(n int, h transport.Header) {
	t.mu.Lock()
	switch {
	case t.dead():
	case len(t.reserved) < headerSize+n:
		t.mu.Unlock()
		panic(fmt.Sprintf("socket: Commit(%d) of more than was reserved", n))
	default:
		t.commit(n, h)
	}
	t.unlock()
}

// commit queues the message that is in the reserved slot.
func (t *Tx) commit(n int, h transport.Header) {
	slot := t.reserved
	t.reserved = nil
	t.add(outgoing{slot: slot, data: slot[headerSize : headerSize+n], header: header{h: h}})
}

// Post implements transport.Tx. A small message is copied: its memory is free at once,
// although Idle counts it with the others. With helpers, the memory of a message that is
// not Idle stays in use until Close, even after a Fault.
func (t *Tx) Post(p []byte, h transport.Header) bool {
	if len(p) > t.maxMessage {
		panic(fmt.Sprintf("socket: Post of %d bytes; messages are at most %d bytes", len(p), t.maxMessage))
	}
	t.mu.Lock()
	ok := t.credit()
	if ok && len(p) <= small && t.reserved == nil {
		copy(t.slot(len(p))[headerSize:], p)
		t.commit(len(p), h)
	} else if ok {
		t.add(outgoing{data: p, header: header{h: h}})
	}
	t.unlock()
	return ok
}

// add queues a message and starts to send it.
func (t *Tx) add(e outgoing) {
	e.header.kind, e.header.number, e.header.total = kindPiece, t.next, uint32(len(e.data))
	t.next++
	t.ring[(t.first+t.count)%slots] = e
	t.count++
	t.push()
}

// Idle implements transport.Tx. It is also false while committed messages wait for buffer
// space: the executor must not end an operation before they are sent.
func (t *Tx) Idle() bool {
	t.mu.Lock()
	if t.count > 0 {
		t.push()
	}
	idle := t.count == 0
	t.unlock()
	return idle
}

// push sends what can be sent now.
func (t *Tx) push() {
	for moved := true; moved && t.count > 0 && !t.dead(); {
		moved = false
		for k := range t.out {
			more, err := t.advance(k)
			if err != nil {
				t.drop(err)
				return
			}
			moved = moved || more
		}
	}
}

// advance makes progress on stream k. It reports whether another try may find more to do.
func (t *Tx) advance(k int) (bool, error) {
	s := &t.out[k]
	if s.helper != nil {
		return t.delegate(k)
	}
	if s.owner == nil && !t.deal(k) {
		return false, nil
	}
	sent, err := s.write()
	if sent {
		t.finish(s)
	}
	return sent, err
}

// delegate takes back a piece that a helper has sent, and gives the helper the next
// piece.
func (t *Tx) delegate(k int) (bool, error) {
	s := &t.out[k]
	switch s.state.Load() {
	case busy:
		return false, nil
	case done:
		if s.err != nil {
			return false, s.err
		}
		t.finish(s)
		s.state.Store(idle)
	}
	if !t.deal(k) {
		return false, nil
	}
	s.state.Store(busy)
	s.helper.kick()
	return true, nil
}

// pieceSize returns the length of a message's pieces: two pieces for each stream, so that
// a fast stream can take work from a slow one, but not less than minPiece.
func pieceSize(total, streams int) int {
	if streams == 1 || total <= minPiece {
		return total
	}
	n := 2 * streams
	return max(minPiece, ((total+n-1)/n+4095)&^4095)
}

// deal assigns the next piece to stream k, or returns false if there is none for it. A
// message begins on stream 0, where the receiver waits for it, and before the next
// message.
func (t *Tx) deal(k int) bool {
	if t.dealt == t.count {
		return false
	}
	e := &t.ring[(t.first+t.dealt)%slots]
	if !e.begun && k != 0 {
		return false
	}
	n := min(pieceSize(len(e.data), len(t.out)), len(e.data)-e.off)
	e.header.offset, e.header.length = uint32(e.off), uint32(n)
	s := &t.out[k]
	if e.slot != nil && !e.begun {
		e.header.put(e.slot)
		end := headerSize + n
		if len(e.data) <= small {
			end = headerSize + padded(n)
		}
		s.head, s.body = e.slot[:end], nil
	} else {
		e.header.put(s.buf[:])
		s.head, s.body = s.buf[:], e.data[e.off:e.off+n]
	}
	s.owner = e
	e.begun = true
	e.off += n
	e.flying++
	if e.off == len(e.data) {
		t.dealt++
	}
	return true
}

// write makes progress on a stream's piece, and reports whether the piece is sent.
func (s *outbound) write() (bool, error) {
	n, err := send(s.fd, s.head, s.body)
	if err != nil && err != errAgain {
		return false, err
	}
	k := min(n, len(s.head))
	s.head, s.body = s.head[k:], s.body[n-k:]
	return len(s.head)+len(s.body) == 0, nil
}

// finish records that a stream has sent its piece, and removes messages that are fully
// sent.
func (t *Tx) finish(s *outbound) {
	s.owner.flying--
	s.owner, s.head, s.body = nil, nil, nil
	for t.dealt > 0 && t.ring[t.first].flying == 0 {
		if slot := t.ring[t.first].slot; slot != nil {
			t.free = append(t.free, slot)
		}
		t.ring[t.first] = outgoing{}
		t.first = (t.first + 1) % slots
		t.count--
		t.dealt--
	}
}

// drop breaks the connection after an error of a stream. It first checks whether the peer
// has said goodbye.
func (t *Tx) drop(err error) {
	t.hear()
	t.failed(err)
}

// hear reads from the receiver, which sends nothing except a goodbye. It returns the
// error of that stream, io.EOF at its end.
func (t *Tx) hear() error {
	var b [headerSize]byte
	n, err := receive(t.out[0].fd, b[:], nil)
	switch {
	case err == errAgain:
		return nil
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	case n == headerSize && parseHeader(b[:]).kind == kindBye:
		t.gone = true
		return nil
	}
	return fmt.Errorf("%d bytes came on the way back", n)
}

// close says goodbye if all was sent, and closes the streams.
func (t *Tx) close() {
	t.mu.Lock()
	defer t.unlock()
	if t.closed {
		return
	}
	t.push()
	if t.count == 0 && !t.broken && len(t.out) > 0 {
		bye(t.out[0].fd)
	}
	t.closed = true
	for _, h := range t.helpers {
		h.end()
	}
	for i := range t.out {
		unix.Close(t.out[i].fd)
	}
}
