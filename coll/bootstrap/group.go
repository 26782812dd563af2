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

// A Group is the processes of a job that continue when some of them die. Only the end of
// rank 0 is the end of all. A Net is for communicators, which end with the first death; a
// Group is for the communication around them.
//
// It is a star: each rank has one connection, to rank 0, with heartbeats in both
// directions. So rank 0's traffic grows with the number of ranks, and the traffic of the
// others does not.
type Group struct {
	rank, size int
	o          Options
	secret     []byte
	addr       netip.Addr // this rank's, as others reach it
	first      netip.Addr // rank 0's, as this rank reaches it
	turn       chan struct{}
	seq        uint32 // number of the current exchange; guarded by turn

	hub *groupHub // rank 0's; nil elsewhere
	up  *link     // to rank 0; nil there
	wg  sync.WaitGroup

	answers chan answer
	ended   context.Context // ends when this rank cannot continue, with the reason
	end     context.CancelCauseFunc
	loss    *loss
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

func (l *loss) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next != nil {
		close(l.next)
		l.next = nil
	}
}

// An answer is rank 0's answer to a part of an exchange.
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
	id, h, err := w.share(ctx, o, func(o Options, secret [secretBytes]byte) *hub { return newCrewHub(w.Size, o, secret).hub })
	if err != nil {
		return nil, err
	}
	c := &Group{
		rank: w.Rank, size: w.Size, o: o, secret: id.secret(), turn: make(chan struct{}, 1), answers: make(chan answer, 1), loss: new(loss),
	}
	c.ended, c.end = context.WithCancelCause(context.Background())
	if w.Rank != 0 {
		if err := c.report(ctx, id, here); err != nil {
			return nil, fmt.Errorf("rank %d cannot connect to rank 0: %w", w.Rank, err)
		}
		return c, nil
	}
	c.hub = h.policy.(*groupHub)
	c.loss = &c.hub.loss
	if _, err := c.hub.exchange(ctx, o.Timeout, here, func([][]byte) ([][]byte, error) { return nil, nil }); err != nil {
		c.Close(err)
		return nil, err
	}
	c.addr = c.hub.address()
	c.first = c.addr
	return c, nil
}

// Rank returns this rank.
func (c *Group) Rank() int { return c.rank }

// Size returns the number of expected ranks, including the lost ones.
func (c *Group) Size() int { return c.size }

// Addr returns this rank's address as others reach it.
func (c *Group) Addr() netip.Addr { return c.addr }

// First returns rank 0's address as this rank reaches it.
func (c *Group) First() netip.Addr { return c.first }

// Key returns a key that only this group has; see Net.Key.
func (c *Group) Key(label string) []byte { return derive(c.secret, "group "+label) }

// Context returns a context that ends when this rank cannot continue, because rank 0 is
// lost or has closed; the cause contains the reason.
func (c *Group) Context() context.Context { return c.ended }

// Here returns, at rank 0, what a rank gave to Await; nil: it did not join.
func (c *Group) Here(rank int) []byte {
	if c.hub == nil {
		return nil
	}
	return c.hub.here(rank)
}

// Lost returns, at rank 0, which ranks are lost, and why.
func (c *Group) Lost() map[int]string {
	if c.hub == nil {
		return nil
	}
	return c.hub.losses()
}

// NextLoss returns a channel that is closed when another rank is lost; all remaining
// ranks are notified.
func (c *Group) NextLoss() <-chan struct{} { return c.loss.wait() }

// Exchange sends b, at most MaxBlock bytes, from each remaining rank to rank 0, which
// answers each of them: judge gets the data of all ranks, by rank and nil where a rank is
// lost, and returns the answers, which may be fewer than ranks. All call Exchange, in the
// same order, and get their answers. judge is called at rank 0 only; all ranks get its
// error.
//
// When the deadline of ctx passes at rank 0, ranks that have not called Exchange are
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
		return c.hub.exchange(ctx, 0, b, judge)
	}
	defer func() { c.seq++ }()
	c.up.send(framePart, append(binary.BigEndian.AppendUint32(nil, c.seq), b...))
	select {
	case a := <-c.answers:
		if a.seq != c.seq {
			return nil, fmt.Errorf("rank %d: rank 0 answered its exchange %d, and this is %d", c.rank, a.seq, c.seq)
		}
		return a.text, a.err
	case <-c.ended.Done():
		return nil, context.Cause(c.ended)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close leaves the Group. why, if not nil, is the reason that the others are told: for a
// rank, why it is lost; for rank 0, why all end.
func (c *Group) Close(why error) {
	var text []byte
	if why != nil {
		text = []byte(why.Error())
		text = text[:min(len(text), maxHello)]
	}
	if c.hub != nil {
		c.hub.close(func() { c.hub.leave(text) })
		c.end(ErrClosed)
		return
	}
	c.up.finish(frameLeave, text, time.Now().Add(closeTime))
	c.wg.Wait()
	c.end(ErrClosed)
}

// report connects a rank to rank 0, and waits for the answer to exchange 0, which tells
// it to begin.
func (c *Group) report(ctx context.Context, id ID, here []byte) error {
	ctx, cancel := c.o.patience(ctx, "it did not begin within %v", c.o.Timeout)
	defer cancel()
	// Others reach this rank at the local address of this connection. A link-local
	// address, for which they need a zone of their own, is the last choice.
	conn, err := id.call(ctx, hello{purpose: toGroup, from: int32(c.rank), to: nobodyRank, size: int32(c.size)}, c.o, true)
	if err != nil {
		return err
	}
	c.addr, c.first = meet.AddrPort(conn.LocalAddr()).Addr(), meet.AddrPort(conn.RemoteAddr()).Addr()
	c.up = newLink(c, c.o.Silence, 0, conn)
	c.up.start(&c.wg)
	if _, err := c.Exchange(ctx, here, nil); err != nil {
		c.Close(err)
		return err
	}
	return nil
}

// handle processes a frame from rank 0, at another rank.
func (c *Group) handle(l *link, k meet.Kind, p []byte) error {
	switch k {
	case frameBeat:
	case frameDeath:
		c.loss.tell()
	case framePart, frameFailed:
		if len(p) < 4 {
			return errors.New("rank 0's answer is cut off")
		}
		a := answer{seq: binary.BigEndian.Uint32(p), text: slices.Clone(p[4:])}
		if k == frameFailed {
			a.text, a.err = nil, errors.New(string(p[4:]))
		}
		select {
		case c.answers <- a:
		default:
			return errors.New("rank 0 sent an answer without a question")
		}
	case frameLeave:
		l.left.Store(true)
		why := wrapf(ErrClosed, "rank 0 has ended")
		if len(p) > 0 {
			why = wrapf(ErrClosed, "rank 0 has ended: %s", p)
		}
		c.end(why)
	default:
		return fmt.Errorf("rank 0 sent a frame of unknown kind %d", k)
	}
	return nil
}

// lost handles the loss of rank 0, at another rank.
func (c *Group) lost(l *link, err error) {
	c.end(wrapf(ErrLost, "rank 0 is lost: %s", silentOr(err, c.o.Silence)))
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
