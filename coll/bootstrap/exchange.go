package bootstrap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxBlock is the maximum length of a rank's block of an AllGather, in bytes.
const MaxBlock = 1 << 20

// An exchange goes up the tree and down again: a rank waits for its children and sends
// their blocks and its own to its parent; rank 0 sends all blocks down, and every rank
// forwards them as they arrive. That is 2 log4 N messages one after the other, and each
// rank receives every block once from above. A barrier is an exchange without blocks.
//
// Payload of a part: number of the exchange (4 bytes), what (1), last (1), then blocks:
// rank (4), length (4), bytes.

const partHeader = 6

const (
	gathers  = 'g'
	barriers = 'b'
)

// partTarget is the size at which a part is full, in bytes, so that forwarding begins
// before everything has arrived.
const partTarget = 64 << 10

// ops are the exchanges that this rank or its neighbours have begun.
type ops struct {
	mu      sync.Mutex
	number  uint32 // of the last exchange begun here
	current bool   // it is not done yet
	pending map[uint32]*op
}

// An op is an exchange. Guarded by ops.mu.
type op struct {
	what   byte
	blocks [][]byte      // by rank; nil: not received yet
	has    []uint32      // this rank, and ranks with blocks received from below
	from   map[int]bool  // children that have sent their last part
	full   chan struct{} // closed when all children have
	down   bool          // the last part from above has arrived
	done   chan struct{} // closed then
}

func (n *Net) opLocked(number uint32, what byte) (*op, error) {
	o := n.ops.pending[number]
	if o == nil {
		o = &op{what: what, from: map[int]bool{}, full: make(chan struct{}), done: make(chan struct{})}
		if what == gathers {
			o.blocks = make([][]byte, n.size)
		}
		if len(n.down) == 0 {
			close(o.full)
		}
		n.ops.pending[number] = o
	}
	if o.what != what {
		return nil, fmt.Errorf("exchange %d is %s on one rank and %s on another", number, whatName(o.what), whatName(what))
	}
	return o, nil
}

func whatName(what byte) string {
	if what == barriers {
		return "a barrier"
	}
	return "an all-gather"
}

// AllGather sends b, at most MaxBlock bytes, to all ranks, and returns the data of each,
// by rank. Lengths may differ. The caller owns the result. An error (a
// *transport.PeerError when a rank died) ends the use of the Net: the ranks are no longer
// in step.
func (n *Net) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	if len(b) > MaxBlock {
		return nil, fmt.Errorf("rank %d: all-gather of %d bytes; at most %d are possible", n.rank, len(b), MaxBlock)
	}
	return n.run(ctx, gathers, b)
}

// Barrier returns when all ranks have called it. Errors are as with AllGather.
func (n *Net) Barrier(ctx context.Context) error {
	_, err := n.run(ctx, barriers, nil)
	return err
}

func (n *Net) run(ctx context.Context, what byte, b []byte) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, n.o.Timeout)
	defer cancel()
	select {
	case <-n.exchange:
		defer func() { n.exchange <- struct{}{} }()
	case <-n.failed:
		return nil, n.Err()
	case <-ctx.Done():
		return nil, fmt.Errorf("rank %d: waiting for another exchange of this rank: %w", n.rank, context.Cause(ctx))
	}
	if err := n.Err(); err != nil {
		return nil, err
	}
	number, o, err := n.begin(what, b)
	if err == nil {
		err = n.pass(ctx, number, o)
	}
	if err != nil {
		n.fail(err)
		return nil, n.Err()
	}
	n.ops.mu.Lock()
	defer n.ops.mu.Unlock()
	n.ops.current = false
	delete(n.ops.pending, number)
	if i := slices.IndexFunc(o.blocks, func(b []byte) bool { return b == nil }); i >= 0 {
		return nil, fmt.Errorf("rank %d: exchange %d brought nothing from rank %d", n.rank, number, i)
	}
	return o.blocks, nil
}

// begin registers this rank's part of the next exchange.
func (n *Net) begin(what byte, b []byte) (uint32, *op, error) {
	n.ops.mu.Lock()
	defer n.ops.mu.Unlock()
	n.ops.number++
	o, err := n.opLocked(n.ops.number, what)
	if err != nil {
		return 0, nil, err
	}
	n.ops.current = true
	if what == gathers {
		o.blocks[n.rank], o.has = append([]byte{}, b...), append(o.has, uint32(n.rank))
	}
	for _, l := range n.links {
		if l.left.Load() && n.inTree(l) && !o.complete(l, n) {
			return 0, nil, fmt.Errorf("rank %d has left (its communicator was closed); rank %d cannot exchange any more", l.rank, n.rank)
		}
	}
	return n.ops.number, o, nil
}

// complete reports whether nothing more is needed from l.
func (o *op) complete(l *link, n *Net) bool {
	if l == n.up {
		return o.down
	}
	return o.from[l.rank]
}

// active reports whether an exchange is in progress that still needs l.
func (s *ops) active(l *link, n *Net) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.pending[s.number]
	if !s.current || o == nil {
		return false
	}
	return n.inTree(l) && !o.complete(l, n)
}

// inTree reports whether exchanges use l: other links belong only to the ring.
func (n *Net) inTree(l *link) bool { return l == n.up || slices.Contains(n.down, l) }

// pass waits for the children, sends upwards, and waits for the parts from above.
func (n *Net) pass(ctx context.Context, number uint32, o *op) error {
	if err := n.await(ctx, o.full, number, o); err != nil {
		return err
	}
	n.ops.mu.Lock()
	parts := o.parts(number)
	n.ops.mu.Unlock()
	if n.up == nil {
		for _, p := range parts {
			n.sendDown(p)
		}
		return nil
	}
	for _, p := range parts {
		n.up.send(framePart, p)
	}
	return n.await(ctx, o.done, number, o)
}

func (n *Net) sendDown(part []byte) {
	for _, l := range n.down {
		l.send(framePart, part)
	}
}

func (n *Net) await(ctx context.Context, c <-chan struct{}, number uint32, o *op) error {
	begun := time.Now()
	late := time.NewTicker(lateEvery)
	defer late.Stop()
	for waiting := true; waiting; {
		select {
		case <-c:
			return nil
		case <-n.failed:
			return n.Err()
		case <-ctx.Done():
			waiting = false
		case <-late.C:
			n.o.Warnf("rank %d has waited %v in an exchange for %s", n.rank, time.Since(begun).Round(time.Second), n.lacking(o))
		}
	}
	kind, cause := error(ErrTimeout), context.Cause(ctx)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = cause
	}
	return wrapf(kind, "rank %d: exchange %d (%s): %v after %v; nothing yet from %s",
		n.rank, number, whatName(o.what), cause, time.Since(begun).Round(time.Millisecond), n.lacking(o))
}

// lacking names the neighbours that an exchange waits for.
func (n *Net) lacking(o *op) string {
	n.ops.mu.Lock()
	defer n.ops.mu.Unlock()
	var ranks []int
	for _, l := range n.down {
		if !o.from[l.rank] {
			ranks = append(ranks, l.rank)
		}
	}
	switch {
	case len(ranks) > 0:
	case n.up == nil: // it came when the context was over
		return "nobody: all ranks have called it"
	default:
		return fmt.Sprintf("rank 0 through rank %d", n.up.rank)
	}
	s := "rank " + rankList(ranks)
	if total := subtree(n.rank, n.size) - 1; total > len(ranks) {
		s += " and the ranks below in the tree"
	}
	return s
}

// parts encodes the blocks that this rank has, in parts of about partTarget bytes.
func (o *op) parts(number uint32) [][]byte {
	var out [][]byte
	p := partHead(number, o.what)
	for _, r := range o.has {
		b := o.blocks[r]
		if len(p) > partHeader && len(p)+8+len(b) > partTarget {
			out = append(out, p)
			p = partHead(number, o.what)
		}
		p = binary.BigEndian.AppendUint32(p, r)
		p = binary.BigEndian.AppendUint32(p, uint32(len(b)))
		p = append(p, b...)
	}
	p[5] = 1 // the last
	return append(out, p)
}

func partHead(number uint32, what byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 256), number), what, 0)
}

// part processes a part of an exchange from a neighbour in the tree.
func (n *Net) part(l *link, p []byte) error {
	if len(p) < partHeader {
		return errors.New("it sent a part of an exchange that is cut off")
	}
	if !n.inTree(l) {
		return errors.New("it sent a part of an exchange, and is no neighbour in the tree")
	}
	if l == n.up {
		n.sendDown(p)
		if len(n.down) > 0 {
			// The caller of AllGather owns the result, and p is still being sent.
			p = bytes.Clone(p)
		}
	}
	number, what, last := binary.BigEndian.Uint32(p), p[4], p[5] == 1
	if what != gathers && what != barriers {
		return fmt.Errorf("it sent a part of an unknown exchange %q", what)
	}
	n.ops.mu.Lock()
	defer n.ops.mu.Unlock()
	// A child is at most one exchange ahead: it cannot end one without this rank.
	if number-n.ops.number > 1 {
		return fmt.Errorf("it sent a part of exchange %d; this rank is in %d", number, n.ops.number)
	}
	o, err := n.opLocked(number, what)
	if err != nil {
		n.fail(err)
		return nil
	}
	if err := o.store(n, l, p[partHeader:]); err != nil {
		return err
	}
	if last {
		o.lastOf(n, l)
	}
	return nil
}

// store extracts the blocks of a part. They are not copied, and stay in p.
func (o *op) store(n *Net, l *link, p []byte) error {
	for len(p) > 0 {
		if len(p) < 8 {
			return errors.New("it sent a block that is cut off")
		}
		rank, length := binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:])
		if p = p[8:]; rank >= uint32(n.size) || uint64(length) > uint64(len(p)) || o.what != gathers {
			return fmt.Errorf("it sent a block of rank %d with %d bytes", rank, length)
		}
		if o.blocks[rank] == nil {
			o.blocks[rank] = p[:length:length]
			if l != n.up {
				o.has = append(o.has, rank)
			}
		}
		p = p[length:]
	}
	return nil
}

// lastOf records that l has sent its last part.
func (o *op) lastOf(n *Net, l *link) {
	switch {
	case l == n.up && !o.down:
		o.down = true
		close(o.done)
	case l != n.up && !o.from[l.rank]:
		o.from[l.rank] = true
		if len(o.from) == len(n.down) {
			close(o.full)
		}
	}
}
