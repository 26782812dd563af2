package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A Group is the processes of a job that continue when some of them die. A Net is for
// communicators, which end with the first death; a Group is for the communication around
// them.
//
// It is a star: each rank has one connection, to the root, which is rank 0, with
// heartbeats in both directions. So the root's traffic grows with the number of ranks, and
// the traffic of the others does not. When the root is lost, the Group ends, and Next
// connects those that are left in a new one, with another root.
type Group struct {
	rank, size int
	root       int
	o          Options
	secret     []byte
	here       []byte
	addr       netip.Addr // this rank's, as others reach it
	first      netip.Addr // the root's, as this rank reaches it
	turn       chan struct{}
	seq        uint32 // number of the current exchange; guarded by turn

	hub  *groupHub // the root's; nil elsewhere
	up   *link     // to the root; nil there
	door *groupHub // where the others come if this rank is the next root; nil at the root
	wg   sync.WaitGroup

	answers chan answer
	ended   context.Context // ends when this rank cannot continue, with the reason
	end     context.CancelCauseFunc
	loss    *loss
	pulse   *pulse
	roster  roster // what the root said when all had joined

	mu     sync.Mutex
	lostBy map[int]string // lost ranks that this rank has heard of; guarded by mu
}

// A loss notifies waiters of the next lost rank.
type loss struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait returns a channel that is closed by the next loss.
func (l *loss) wait() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.next = make(chan struct{})
	}
	return l.next
}

func (l *loss) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != nil {
		close(l.next)
		l.next = nil
	}
}

// An answer is the root's answer to a part of an exchange.
type answer struct {
	seq  uint32
	text []byte
	err  error
}

// Await connects the processes of a job; all of them call it. here is what rank 0 learns
// about the caller. Await returns when all have joined, or after o.Timeout: ranks that
// have not joined by then are lost, and the others continue. A rank that joins later gets
// an error. o.Silence is how long a rank may send nothing before it is lost; o.OnDeath is
// called at rank 0 for each loss, one call at a time. The caller must Close the Group.
func Await(ctx context.Context, w World, here []byte, o Options) (*Group, error) {
	o = o.withDefaults()
	if len(here) > MaxBlock {
		return nil, fmt.Errorf("%d bytes about rank %d; at most %d are possible", len(here), w.Rank, MaxBlock)
	}
	id, h, err := w.share(ctx, o, func(o Options, secret [secretBytes]byte) *hub { return newCrewHub(0, w.Size, o, secret).hub })
	if err != nil {
		return nil, err
	}
	c := newGroup(w.Rank, w.Size, 0, o, id.secret(), here)
	if w.Rank != 0 {
		ctx, cancel := o.patience(ctx, "it did not begin within %v", o.Timeout)
		defer cancel()
		if err := c.report(ctx, id); err != nil {
			return nil, fmt.Errorf("rank %d cannot connect to rank 0: %w", w.Rank, err)
		}
		return c, nil
	}
	if err := c.gather(ctx, h.policy.(*groupHub), o.Timeout, func([][]byte) error { return nil }); err != nil {
		return nil, err
	}
	return c, nil
}

func newGroup(rank, size, root int, o Options, secret, here []byte) *Group {
	c := &Group{
		rank: rank, size: size, root: root, o: o, secret: secret, here: here, turn: make(chan struct{}, 1), answers: make(chan answer, 1),
		loss: new(loss), lostBy: map[int]string{},
	}
	c.ended, c.end = context.WithCancelCause(context.Background())
	c.pulse = newPulse(o.Silence, func(err error) { c.end(err) })
	return c
}

// gather is the root's side of joining. judge may refuse those that have joined.
func (c *Group) gather(ctx context.Context, h *groupHub, limit time.Duration, judge func(parts [][]byte) error) error {
	c.hub, c.loss = h, &h.loss
	h.alive = c.pulse.check
	_, err := h.exchange(ctx, limit, introduce(netip.AddrPort{}, c.here), func(parts [][]byte) ([][]byte, error) {
		if err := judge(parts); err != nil {
			return nil, err
		}
		var answers [][]byte
		c.roster, answers = h.roster(parts)
		return answers, nil
	})
	if err != nil {
		c.Close(err)
		return err
	}
	c.addr = h.address()
	c.first = c.addr
	return nil
}

// Stopped returns an error if this process was stopped for longer than the others allow.
func (c *Group) Stopped() error { return c.pulse.check() }

// Root returns the rank to which all are connected.
func (c *Group) Root() int { return c.root }

// Deputies returns the ranks that are the next roots, in this order.
func (c *Group) Deputies() (ranks []int) {
	for _, d := range c.roster.deputies {
		ranks = append(ranks, d.rank)
	}
	return ranks
}

// Rank returns this rank.
func (c *Group) Rank() int { return c.rank }

// Size returns the number of expected ranks, including the lost ones.
func (c *Group) Size() int { return c.size }

// Addr returns this rank's address as others reach it.
func (c *Group) Addr() netip.Addr { return c.addr }

// First returns the root's address as this rank reaches it.
func (c *Group) First() netip.Addr { return c.first }

// Key returns a key that only this group has; see Net.Key.
func (c *Group) Key(label string) []byte { return derive(c.secret, "group "+label) }

// Context returns a context that ends when this rank cannot continue, because the root is
// lost (the cause is ErrLost: then Next may continue) or has closed; the cause contains the
// reason.
func (c *Group) Context() context.Context { return c.ended }

// Here returns, at the root and its deputies, what a rank gave to Await; nil: it did not
// join.
func (c *Group) Here(rank int) []byte {
	switch {
	case c.hub != nil:
		return c.hub.joinData(rank)
	case rank >= 0 && rank < len(c.roster.heres):
		return c.roster.heres[rank]
	}
	return nil
}

// Lost returns, at the root, which ranks are lost, and why.
func (c *Group) Lost() map[int]string {
	if c.hub == nil {
		return nil
	}
	return c.hub.losses()
}

// NextLoss returns a channel that is closed when another rank is lost; all remaining
// ranks are notified.
func (c *Group) NextLoss() <-chan struct{} { return c.loss.wait() }

// Exchange sends b, at most MaxBlock bytes, from each remaining rank to the root, which
// answers each of them: judge gets the data of all ranks, by rank and nil where a rank is
// lost, and returns the answers, which may be fewer than ranks. All call Exchange, in the
// same order, and get their answers. judge is called at the root only; all ranks get its
// error.
//
// When the deadline of ctx passes at the root, ranks that have not called Exchange are
// lost, and the exchange continues. Any other end of ctx ends the exchange, and the
// rank's part in the Group.
func (c *Group) Exchange(ctx context.Context, b []byte, judge func(all [][]byte) ([][]byte, error)) ([]byte, error) {
	if len(b) > MaxBlock {
		return nil, fmt.Errorf("rank %d: %d bytes for an exchange; at most %d are possible", c.rank, len(b), MaxBlock)
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.hub != nil {
		if err := context.Cause(c.ended); err != nil {
			return nil, err
		}
		return c.hub.exchange(ctx, 0, b, judge)
	}
	defer func() { c.seq++ }()
	c.up.send(framePart, append(binary.BigEndian.AppendUint32(nil, c.seq), b...))
	select {
	case a := <-c.answers:
		if a.seq != c.seq {
			return nil, fmt.Errorf("rank %d: rank %d answered its exchange %d, and this is %d", c.rank, c.root, a.seq, c.seq)
		}
		return a.text, a.err
	case <-c.ended.Done():
		return nil, context.Cause(c.ended)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close leaves the Group. why, if not nil, is the reason that the others are told: for a
// rank, why it is lost; for the root, why all end.
func (c *Group) Close(why error) {
	var text []byte
	if why != nil {
		text = []byte(why.Error())
		text = text[:min(len(text), maxHello)]
	}
	c.pulse.stop()
	if c.hub != nil {
		c.hub.close(func() { c.hub.leave(text) })
	}
	if c.up != nil {
		c.up.finish(frameLeave, text, time.Now().Add(closeTime))
	}
	if c.door != nil {
		c.door.Close()
	}
	c.wg.Wait()
	c.end(ErrClosed)
}

// report connects a rank to the root, and waits for the answer to exchange 0, which tells
// it to begin.
func (c *Group) report(ctx context.Context, id ID) error {
	// Others reach this rank at the local address of this connection. A link-local
	// address, for which they need a zone of their own, is the last choice.
	conn, err := id.call(ctx, hello{purpose: toGroup, from: int32(c.rank), to: nobodyRank, size: int32(c.size)}, c.o, true)
	if err != nil {
		c.Close(err)
		return err
	}
	return c.join(ctx, conn)
}

// join is report over a connection to the root, which it owns.
func (c *Group) join(ctx context.Context, conn net.Conn) error {
	c.addr, c.first = meet.AddrPort(conn.LocalAddr()).Addr(), meet.AddrPort(conn.RemoteAddr()).Addr()
	c.up = newLink(c, c.o.Silence, c.root, conn)
	c.up.start(&c.wg)
	at, err := c.openDoor()
	var answer []byte
	if err == nil {
		answer, err = c.Exchange(ctx, introduce(at, c.here), nil)
	}
	if err == nil {
		err = c.roster.decode(answer, c.size)
	}
	if err != nil {
		c.Close(err)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for rank, why := range c.roster.lost {
		c.lostBy[rank] = why
	}
	return nil
}

// handle processes a frame from the root, at another rank.
func (c *Group) handle(l *link, k meet.Kind, p []byte) error {
	switch k {
	case frameBeat:
	case frameDeath:
		if len(p) < 4 {
			return fmt.Errorf("rank %d's report of a death is cut off", c.root)
		}
		c.mu.Lock()
		c.lostBy[int(int32(binary.BigEndian.Uint32(p)))] = string(p[4:])
		c.mu.Unlock()
		c.loss.wake()
	case framePart, frameFailed:
		if len(p) < 4 {
			return fmt.Errorf("rank %d's answer is cut off", c.root)
		}
		a := answer{seq: binary.BigEndian.Uint32(p), text: slices.Clone(p[4:])}
		if k == frameFailed {
			a.text, a.err = nil, errors.New(string(p[4:]))
		}
		select {
		case c.answers <- a:
		default:
			return fmt.Errorf("rank %d sent an answer without a question", c.root)
		}
	case frameLeave:
		l.left.Store(true)
		why := wrapf(ErrClosed, "rank %d has ended", c.root)
		if len(p) > 0 {
			why = wrapf(ErrClosed, "rank %d has ended: %s", c.root, p)
		}
		c.end(why)
	default:
		return fmt.Errorf("rank %d sent a frame of unknown kind %d", c.root, k)
	}
	return nil
}

// lost handles the loss of the root, at another rank.
func (c *Group) lost(_ *link, err error) {
	c.end(&lossError{c.root, silentOr(err, c.o.Silence)})
}

// silentOr returns why a link broke.
func silentOr(err error, silence time.Duration) string {
	if isTimeout(err) {
		return fmt.Sprintf("nothing was heard of it for %v", silence)
	}
	return meet.Brief(err)
}

// ownAddr returns the address at which others reach the process that listens on an ID's
// addresses.
func ownAddr(id ID, o Options, members []net.Conn) netip.Addr {
	for _, c := range members {
		// A process on this host may have connected by an address that no other host can
		// use.
		if a, b := meet.AddrPort(c.LocalAddr()).Addr(), meet.AddrPort(c.RemoteAddr()).Addr(); a.WithZone("") != b.WithZone("") {
			return a
		}
	}
	if addrs, err := id.addrs(); err == nil {
		for _, z := range meet.Zones(addrs[0], o.Ifname) {
			return z.Addr()
		}
	}
	return netip.IPv6Loopback()
}
