package socket

import (
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
)

// An Rx is the receiving end of a connection.
//
// Stream 0 is read ahead, several small messages at once, which are used in place. When a
// large message begins there, its pieces are read directly to their destination: posted
// memory, or the slot. Each such read also takes the following header, and no more: the
// data after it has another destination.
type Rx struct {
	conn
	maxMessage int
	arrived    []int     // descriptors, -1 for streams that are not connected yet
	in         []inbound // nil until all streams are connected
	direct     int       // how many of them the caller reads, from the first on
	helpers    []*helper // read the others

	next     uint32 // number of the next message
	cur      header // header of the message that is being received
	active   bool   // a message is being received
	whole    bool   // all of it has arrived
	peeked   bool   // Peek has returned it
	got      int    // bytes of it that the caller has stored at their destination
	target   []byte // the destination, unless the message is in the read-ahead
	slot     []byte // for messages without a posted buffer of their length
	posted   []byte
	isPosted bool
	last     uint32 // length of the previous message: a guess for the next one

	shared  atomic.Uint64         // the message on which helpers work, its number plus 1, or 0
	helped  atomic.Int64          // bytes of it that helpers have stored at their destination
	trouble atomic.Pointer[error] // a helper's error
}

// open prepares the connection, once all streams are connected, and starts their helpers.
func (r *Rx) open() error {
	in := make([]inbound, len(r.arrived))
	for k, fd := range r.arrived {
		size := headerSize
		if k == 0 {
			size = aheadSize
		}
		in[k] = inbound{fd: fd, ahead: make([]byte, size)}
	}
	var err error
	r.helpers, err = r.e.share(r.arrived, unix.EPOLLIN|unix.EPOLLRDHUP, func(from, to int) bool { return r.help(in[from:to]) })
	if err != nil {
		return err
	}
	r.direct = len(in)
	if len(r.helpers) > 0 {
		r.direct = 1
	}
	r.in = in
	return nil
}

// help is a helper's step: it reads from its streams, and reports whether bytes moved.
func (r *Rx) help(streams []inbound) (moved bool) {
	job := r.shared.Load()
	if job == 0 || r.trouble.Load() != nil {
		return false
	}
	for k := range streams {
		s := &streams[k]
		n, err := s.drain(uint32(job-1), &r.target, math.MaxInt)
		if err != nil {
			trouble := err // escapes, so that err does not
			r.trouble.Store(&trouble)
		}
		if n > 0 {
			moved = true
			r.helped.Add(int64(n))
		}
		if err != nil || n > 0 && len(s.body) == 0 {
			signal(r.e.wake)
		}
	}
	return moved
}

// MaxMessage is the length of the longest message, in bytes.
func (r *Rx) MaxMessage() int { return r.maxMessage }

// Direct is true: large messages are received into posted memory.
func (r *Rx) Direct() bool { return true }

// Peek implements transport.Rx. The memory is aligned to 8 bytes.
func (r *Rx) Peek() (p []byte, h transport.Header, ok bool) {
	r.mu.Lock()
	if !r.closed && r.progress() {
		p, h, ok = r.message(), r.cur.h, true
		r.peeked = true
	}
	r.unlock()
	return p, h, ok
}

// Release implements transport.Rx.
func (r *Rx) Release() bool {
	r.mu.Lock()
	if r.peeked {
		r.consume()
	}
	r.unlock()
	return true
}

// Post implements transport.Rx. While a message is peeked at, p is for the next message.
// With helpers, p stays in use until Done or Close, even after a Fault.
func (r *Rx) Post(p []byte) {
	r.mu.Lock()
	r.posted, r.isPosted = p, true
	r.unlock()
}

// Done implements transport.Rx.
func (r *Rx) Done() (h transport.Header, n int, ok bool) {
	r.mu.Lock()
	if r.isPosted && !r.peeked && !r.closed && r.progress() {
		p := r.message()
		h, n, ok = r.cur.h, len(p), true
		if n == len(r.posted) && n > 0 && &p[0] != &r.posted[0] {
			copy(r.posted, p)
		}
		r.posted, r.isPosted = nil, false
		r.consume()
	}
	r.unlock()
	return h, n, ok
}

// inPlace reports whether the message is in the read-ahead.
func (r *Rx) inPlace() bool { return r.cur.total <= small }

// message returns the message, which must be complete.
func (r *Rx) message() []byte {
	if r.inPlace() {
		s := &r.in[0]
		return s.ahead[s.r+headerSize:][:r.cur.total:r.cur.total]
	}
	return r.target
}

// consume finishes the message.
func (r *Rx) consume() {
	if r.inPlace() {
		r.in[0].r += headerSize + padded(int(r.cur.total))
	}
	r.last = r.cur.total
	r.active, r.whole, r.peeked, r.target = false, false, false, nil
	r.next++
}

// progress reads the available data, and reports whether a message is complete. If it is
// not, the sockets that it needs have no more data.
func (r *Rx) progress() bool {
	if r.whole {
		return true
	}
	if r.in == nil || r.broken {
		return false
	}
	if !r.active {
		if err := r.begin(); err != nil {
			r.failed(err)
		}
		if !r.active {
			return false
		}
	}
	var err error
	if r.inPlace() {
		r.whole, err = r.in[0].need(headerSize+padded(int(r.cur.total)), true)
	} else {
		r.whole, err = r.gather()
	}
	if err != nil {
		r.failed(err)
	}
	return r.whole
}

// begin reads a message's first header, if it has arrived.
func (r *Rx) begin() error {
	s := &r.in[0]
	if ok, err := s.need(headerSize, r.guess() <= small); !ok {
		return err
	}
	h := parseHeader(s.ahead[s.r:])
	if h.kind == kindBye {
		r.gone = true
		return io.EOF
	}
	if err := h.check(r.maxMessage); err != nil {
		return &wireError{err.Error()}
	}
	if h.number != r.next || h.offset != 0 || h.total <= small && h.length != h.total {
		return &wireError{fmt.Sprintf("message %d at %d where message %d should begin", h.number, h.offset, r.next)}
	}
	r.cur, r.active = h, true
	if r.inPlace() {
		return nil
	}
	r.target = r.place(int(h.total))
	s.r += headerSize
	s.body = r.target[:h.length]
	r.got = 0
	r.helped.Store(0)
	if len(r.helpers) > 0 && h.length < h.total {
		r.shared.Store(uint64(h.number) + 1)
		for _, h := range r.helpers {
			h.kick()
		}
	}
	return nil
}

// gather collects the pieces of a large message, and reports whether all have arrived.
func (r *Rx) gather() (bool, error) {
	total, ended := int(r.cur.total), 0
	for k := 0; k < r.direct && r.got < total; k++ {
		s := &r.in[k]
		n, err := s.drain(r.cur.number, &r.target, total-r.got)
		r.got += n
		if err != nil {
			return false, err
		}
		if len(s.body) == 0 && s.w-s.r >= headerSize {
			ended++ // it is already at the next message
		}
	}
	if r.got+int(r.helped.Load()) == total {
		r.shared.Store(0)
		return true, nil
	}
	if err := r.trouble.Load(); err != nil {
		return false, *err
	}
	if ended == len(r.in) {
		return false, &wireError{fmt.Sprintf("%d bytes of message %d, which has %d", r.got, r.cur.number, total)}
	}
	return false, nil
}

// guess estimates the length of the next message.
func (r *Rx) guess() int {
	if r.isPosted {
		return len(r.posted)
	}
	return int(r.last)
}

// place returns the destination of a large message of n bytes.
func (r *Rx) place(n int) []byte {
	if r.isPosted && len(r.posted) == n {
		return r.posted
	}
	if len(r.slot) < n {
		r.slot = make([]byte, 1<<bits.Len(uint(n-1)))
	}
	return r.slot[:n]
}

// close says goodbye to the sender, and closes the streams.
func (r *Rx) close() {
	r.mu.Lock()
	defer r.unlock()
	if r.closed {
		return
	}
	if r.in != nil && !r.broken && !r.gone {
		bye(r.in[0].fd)
	}
	r.closed = true
	for _, h := range r.helpers {
		h.end()
	}
	for _, fd := range r.arrived {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
