package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// maxDeputies is how many ranks may become the next root. Only they get what the root
// knows of all ranks, which would be quadratic if all got it.
const maxDeputies = 8

const addrBytes = 18

// introduce returns a rank's part of exchange 0: where its door is, and what it says of itself.
func introduce(door netip.AddrPort, here []byte) []byte {
	b := make([]byte, addrBytes, addrBytes+len(here))
	if door.IsValid() {
		putAddr(b, door)
	}
	return append(b, here...)
}

// A deputy is a rank that becomes root if those before it are lost.
type deputy struct {
	rank int
	door netip.AddrPort
}

// A roster is the root's answer to exchange 0: number of deputies (1), of each its rank (4)
// and address (18); for deputies, of each rank: length and text of what it said of itself,
// length and text of why it is lost, with lengths of 4 bytes.
type roster struct {
	deputies []deputy
	heres    [][]byte // by rank; nil: not known
	lost     map[int]string
}

// roster returns the roster, and the answers with it.
func (h *groupHub) roster(parts [][]byte) (r roster, answers [][]byte) {
	for rank, p := range parts {
		if rank == h.rank || len(p) < addrBytes {
			continue
		}
		if at := getAddr(p); at.Port() != 0 && len(r.deputies) < maxDeputies {
			r.deputies = append(r.deputies, deputy{rank, at})
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r.heres, r.lost = slices.Clone(h.heres), maps.Clone(h.lostBy)
	short := []byte{byte(len(r.deputies))}
	for _, d := range r.deputies {
		short = binary.BigEndian.AppendUint32(short, uint32(d.rank))
		short = append(short, make([]byte, addrBytes)...)
		putAddr(short[len(short)-addrBytes:], d.door)
	}
	long := slices.Clone(short)
	for rank, here := range r.heres {
		for _, text := range [][]byte{here, []byte(r.lost[rank])} {
			long = append(binary.BigEndian.AppendUint32(long, uint32(len(text))), text...)
		}
	}
	answers = slices.Repeat([][]byte{short}, h.size)
	if len(long) <= MaxBlock {
		for _, d := range r.deputies {
			answers[d.rank] = long
		}
	}
	return r, answers
}

var errRoster = errors.New("the root's answer is cut off")

func (r *roster) decode(b []byte, size int) error {
	if len(b) < 1 || len(b) < 1+int(b[0])*(4+addrBytes) {
		return errRoster
	}
	n := int(b[0])
	for b = b[1:]; n > 0; n-- {
		rank := int(int32(binary.BigEndian.Uint32(b)))
		if rank < 0 || rank >= size {
			return fmt.Errorf("the root calls rank %d of %d a deputy", rank, size)
		}
		r.deputies = append(r.deputies, deputy{rank, getAddr(b[4:])})
		b = b[4+addrBytes:]
	}
	if len(b) == 0 {
		return nil
	}
	text := func() ([]byte, bool) {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
			return nil, false
		}
		n := 4 + int(binary.BigEndian.Uint32(b))
		t := b[4:n:n]
		b = b[n:]
		return t, true
	}
	r.heres, r.lost = make([][]byte, size), map[int]string{}
	for rank := range size {
		here, ok := text()
		why, ok2 := text()
		if !ok || !ok2 {
			return errRoster
		}
		if len(here) > 0 {
			r.heres[rank] = here
		}
		if len(why) > 0 {
			r.lost[rank] = string(why)
		}
	}
	return nil
}

// openDoor listens where the others come if this rank becomes the root, and returns the
// address. Until then the door is shut.
func (c *Group) openDoor() (netip.AddrPort, error) {
	l, err := net.Listen("tcp", netip.AddrPortFrom(c.addr, 0).String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	at := meet.AddrPort(l.Addr())
	secret := c.nextSecret()
	c.door = newCrewHub(c.rank, c.size, c.o, secret)
	c.door.id = newID(secret, []netip.AddrPort{at}, false)
	c.shutDoor("rank %d is not lost to rank %d", c.root, c.rank)
	c.door.serve([]net.Listener{l})
	return at, nil
}

func (c *Group) shutDoor(format string, a ...any) {
	why := fmt.Sprintf(format, a...)
	c.door.shut.Store(&why)
}

// nextSecret is the secret of the Group after this one. So a rank that belongs to another
// one cannot come in.
func (c *Group) nextSecret() [secretBytes]byte {
	return [secretBytes]byte(derive(c.secret, "next group"))
}

// errFinal means that a succession must not continue with the next deputy.
var errFinal = errors.New("final")

// Next connects the ranks that are left when the root is lost, in a new Group: the first
// deputy that can be reached is its root. All ranks call it, as soon as the context of their
// Group has ended with ErrLost. After an error the caller still closes c; otherwise c is
// closed.
//
// A rank whose root is lost to it alone gets an error: deputies that still hear the root
// refuse it. So do ranks that are fewer than half of those that were left. So of two parts
// of the ranks that cannot reach one another the smaller one does not continue, unless it has
// the root, or both are equal. Since each lacks ranks, none of them is complete.
func (c *Group) Next(ctx context.Context) (*Group, error) {
	cause := context.Cause(c.ended)
	if err := c.pulse.check(); err != nil {
		return nil, err
	}
	if !errors.Is(cause, ErrLost) {
		return nil, cause
	}
	at := time.Now()
	last := errors.New("no other machine can take over")
	for i, d := range c.roster.deputies {
		c.mu.Lock()
		_, gone := c.lostBy[d.rank]
		c.mu.Unlock()
		var n *Group
		var err error
		switch {
		case gone:
			continue
		case d.rank == c.rank:
			n, err = c.lead(ctx, i, fmt.Sprintf("%s (at %s; rank %d took over)", lossOf(cause), at.UTC().Format(time.RFC3339), c.rank))
		default:
			n, err = c.follow(ctx, i, d)
		}
		if err == nil {
			c.Close(nil)
			return n, nil
		}
		last = err
		if errors.Is(err, errFinal) || ctx.Err() != nil {
			break
		}
		if errors.Is(err, syscall.ECONNREFUSED) { // it listened before: its process has ended
			c.mu.Lock()
			c.lostBy[d.rank] = fmt.Sprintf("it was lost together with rank %d", c.root)
			c.mu.Unlock()
		}
	}
	return nil, wrapf(ErrLost, "%v; %v", cause, last)
}

// lossOf returns why the root is lost.
func lossOf(cause error) string {
	var e *lossError
	if errors.As(cause, &e) {
		return e.why
	}
	return cause.Error()
}

// A lossError is the loss of the root.
type lossError struct {
	root int
	why  string
}

func (e *lossError) Error() string { return fmt.Sprintf("rank %d is lost: %s", e.root, e.why) }
func (e *lossError) Unwrap() error { return ErrLost }

// handover is how long a rank tries to reach a deputy: others may notice the root's loss
// later than this one, by less than the silence that they allow.
func (o Options) handover() time.Duration { return o.Silence + meet.Patience }

// lead makes this rank the root, the i-th in the order. why is the reason for the loss of the
// last one.
func (c *Group) lead(ctx context.Context, i int, why string) (*Group, error) {
	secret := c.nextSecret()
	n := newGroup(c.rank, c.size, c.rank, c.o, secret[:], c.here)
	h := c.door
	c.door = nil
	c.mu.Lock()
	left := c.size - len(c.lostBy) // with the last root
	lost := maps.Clone(c.lostBy)
	c.mu.Unlock()
	lost[c.root] = why
	h.inherit(lost, c.roster.heres, c.root)
	// Each deputy before this one may have cost the others as much time as this rank.
	err := n.gather(ctx, h, time.Duration(i+1)*c.o.handover(), func(parts [][]byte) error {
		came := 0
		for _, p := range parts {
			if p != nil {
				came++
			}
		}
		if err := c.elsewhere(ctx, parts); err != nil {
			return err
		}
		if 2*came < left {
			return fmt.Errorf("%d of %d machines came to rank %d, which is less than half", came, left, c.rank)
		}
		return nil
	})
	if err != nil {
		return nil, &finalError{err}
	}
	return n, nil
}

// A finalError ends a succession.
type finalError struct{ error }

func (e *finalError) Unwrap() []error { return []error{e.error, errFinal} }

// inherit prepares a door to be the root's hub, and opens it.
func (h *groupHub) inherit(lost map[int]string, heres [][]byte, root int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lostBy = lost
	h.absent = h.size - len(lost)
	copy(h.heres, heres)
	if f, why := h.o.OnDeath, lost[root]; f != nil {
		h.deaths.add(func() { f(root, why) })
	}
	h.shut.Store(nil)
}

// elsewhere asks the deputies that did not come whether they are alive. If one is, this rank
// is not the next root.
func (c *Group) elsewhere(ctx context.Context, parts [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, meet.Patience)
	defer cancel()
	errs := make([]error, len(c.roster.deputies))
	var wg sync.WaitGroup
	for i, d := range c.roster.deputies {
		c.mu.Lock()
		_, gone := c.lostBy[d.rank]
		c.mu.Unlock()
		if gone || parts[d.rank] != nil {
			continue
		}
		wg.Go(func() {
			conn, err := c.call(ctx, d)
			if err == nil {
				conn.Close()
				errs[i] = fmt.Errorf("rank %d leads others", d.rank)
			} else if errors.Is(err, ErrRefused) {
				errs[i] = fmt.Errorf("rank %d: %s", d.rank, meet.Brief(err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// call dials a deputy's door.
func (c *Group) call(ctx context.Context, d deputy) (net.Conn, error) {
	id := newID(c.nextSecret(), []netip.AddrPort{d.door}, false)
	return id.call(ctx, hello{purpose: toGroup, from: int32(c.rank), to: nobodyRank, size: int32(c.size)}, c.o, true)
}

// follow joins the i-th deputy. A deputy that answers and does not become root is final: it
// hears the root still, or another one.
func (c *Group) follow(ctx context.Context, i int, d deputy) (*Group, error) {
	reach, cancel := context.WithTimeoutCause(ctx, c.o.handover(), wrapf(ErrTimeout, "it cannot be reached within %v", c.o.handover()))
	defer cancel()
	var conn net.Conn
	var refused error // what it said last
	err := meet.Again(reach, func() (final bool, err error) {
		conn, err = c.call(reach, d)
		if errors.Is(err, ErrRefused) {
			refused = err
			return false, err
		}
		return true, err
	})
	switch {
	case err != nil && refused != nil:
		return nil, &finalError{fmt.Errorf("rank %d: %s", d.rank, meet.Brief(refused))}
	case err != nil:
		return nil, fmt.Errorf("rank %d: %w", d.rank, err)
	}
	if c.door != nil {
		c.shutDoor("rank %d follows rank %d", c.rank, d.rank)
	}
	secret := c.nextSecret()
	n := newGroup(c.rank, c.size, d.rank, c.o, secret[:], c.here)
	begin, cancel := context.WithTimeoutCause(ctx, time.Duration(i+2)*c.o.handover(), wrapf(ErrTimeout, "rank %d did not begin in time", d.rank))
	defer cancel()
	if err := n.join(begin, conn); err != nil {
		if !errors.Is(err, ErrLost) {
			err = &finalError{err}
		}
		return nil, err
	}
	return n, nil
}

// A pulse notices that this process was stopped for as long as the others wait for a sign of
// life: they go on without it.
type pulse struct {
	silence time.Duration
	begun   time.Time
	last    atomic.Int64 // nanoseconds since begun
	quit    chan struct{}
	once    sync.Once
	gone    atomic.Bool
	over    func(error)
	wg      sync.WaitGroup
}

// newPulse calls over when it has noticed.
func newPulse(silence time.Duration, over func(error)) *pulse {
	p := &pulse{silence: silence, begun: time.Now(), quit: make(chan struct{}), over: over}
	p.wg.Go(func() {
		t := time.NewTicker(max(silence/4, time.Millisecond))
		defer t.Stop()
		for {
			select {
			case <-t.C:
				if p.check() != nil {
					return
				}
				p.last.Store(int64(time.Since(p.begun)))
			case <-p.quit:
				return
			}
		}
	})
	return p
}

// check returns an error if the process was stopped.
func (p *pulse) check() error {
	if !p.gone.Load() && time.Since(p.begun)-time.Duration(p.last.Load()) <= p.silence {
		return nil
	}
	err := wrapf(ErrClosed, "this process was stopped for more than %v, so the others go on without it", p.silence)
	if !p.gone.Swap(true) {
		p.over(err)
	}
	return err
}

func (p *pulse) stop() {
	p.once.Do(func() { close(p.quit) })
	p.wg.Wait()
}
