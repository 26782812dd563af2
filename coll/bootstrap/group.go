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

// A Group is the processes of a job that go on when some of them die: all but rank
// 0, whose end is the end of all. A Net is for communicators, which end with the first
// death; a Group is for what is said around them.
//
// It is a star: each rank has one connection, to rank 0, with heartbeats both
// ways. So what rank 0 sends and receives grows with the number of ranks, and what
// the others do does not.
type Group struct {
	rank, size int
	o          Options
	secret     []byte
	addr       netip.Addr // this rank's, as others reach it
	first      netip.Addr // rank 0's, as this rank reaches it
	turn       chan struct{}
	seq        uint32 // of the last exchange; of who has the turn

	hub *groupHub // rank 0's; nil elsewhere
	up  *link     // to rank 0; nil there
	wg  sync.WaitGroup

	answers chan answer
	ended   context.Context // when this rank cannot go on, with the reason
	end     context.CancelCauseFunc
	loss    *loss
}

// A loss is told to what waits for the next one.
type loss struct {
	mu   sync.Mutex
	next chan struct{}
}

// wait is closed by the next loss.
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

// An answer is rank 0's, to a part of an exchange.
type answer struct {
	seq  uint32
	text []byte
	err  error
}

// Await brings the processes of a job together; all call it. Each gives what rank
// 0 is to know of it. It waits until all have come, or o.Timeout is over: who is not
// there then is lost, and the others go on. Who comes later gets an error. o.Silence
// is how long nothing may come from a rank until it is lost; o.OnDeath is called at
// rank 0 for each loss, one call at a time. The Group is the caller's to Close.
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
			return nil, fmt.Errorf("rank %d cannot come to rank 0: %w", w.Rank, err)
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

// Rank is this rank, Size how many there were to be.
func (c *Group) Rank() int { return c.rank }

// Size is how many ranks there were to be, the lost included.
func (c *Group) Size() int { return c.size }

// Addr is this rank's address as others reach it, First rank 0's as this rank does.
func (c *Group) Addr() netip.Addr { return c.addr }

// First is rank 0's address as this rank reaches it.
func (c *Group) First() netip.Addr { return c.first }

// Key is a key that this group has and nobody else; see Net.Key.
func (c *Group) Key(label string) []byte { return derive(c.secret, "group "+label) }

// Context ends when this rank cannot go on, since rank 0 is lost or has closed; the
// cause says why.
func (c *Group) Context() context.Context { return c.ended }

// Here is what a rank said of itself, at rank 0; nil: it did not come.
func (c *Group) Here(rank int) []byte {
	if c.hub == nil {
		return nil
	}
	return c.hub.here(rank)
}

// Lost says at rank 0 which ranks are lost, and why.
func (c *Group) Lost() map[int]string {
	if c.hub == nil {
		return nil
	}
	return c.hub.losses()
}

// NextLoss is closed when another rank is lost; all that are left hear of it.
func (c *Group) NextLoss() <-chan struct{} { return c.loss.wait() }

// Exchange has each rank that is left give b, at most MaxBlock bytes, and rank 0
// answer each: of what all gave, by rank and nil where a rank is lost, judge makes
// the answers, which may be fewer than ranks. All call it, in the same order, and get
// their answers; judge is called at rank 0 only, and its error is everybody's.
//
// When the deadline of ctx at rank 0 passes, who has not come is lost, and the
// exchange goes on. Other ends of ctx end it, and the rank.
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

// Close leaves. why, if not nil, is what the others are told: of a rank, that it is
// lost for this reason; of rank 0, why all end.
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

// report connects a rank with rank 0, and waits for its word to begin, which is the
// answer to exchange 0.
func (c *Group) report(ctx context.Context, id ID, here []byte) error {
	ctx, cancel := c.o.patience(ctx, "it did not begin within %v", c.o.Timeout)
	defer cancel()
	// Where this rank comes from is where others look for it: a link-local address,
	// which needs a zone of their own, is the last that will do.
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

// handle is a rank's: what rank 0 says.
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
			return errors.New("rank 0 answered what nobody asked")
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

// lost is a rank's, of rank 0.
func (c *Group) lost(l *link, err error) {
	c.end(wrapf(ErrLost, "rank 0 is lost: %s", silentOr(err, c.o.Silence)))
}

// silentOr says why a link broke.
func silentOr(err error, silence time.Duration) string {
	if isTimeout(err) {
		return fmt.Sprintf("nothing was heard of it for %v", silence)
	}
	return meet.Brief(err)
}

// ownAddr is where others reach who listens on an ID's addresses.
func ownAddr(id ID, o Options, members []net.Conn) netip.Addr {
	for _, c := range members {
		// Somebody on this host may have come by an address that no other can use.
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
