package coll

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/session"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Comm is one rank's side of a communicator.
type Comm struct {
	*ranks
	links  *session.Links
	forced *forced
	watch  host.Watch
	gate
	closed      atomic.Bool
	suspended   atomic.Bool
	waits       *hang.Waits
	regroupings regroupings

	// Used by the goroutine that runs an operation.
	group   *Group
	own     Group  // for a Do of several Sends and Recvs
	seq     uint32 // of the last collective
	sent    []uint32
	rcvd    []uint32
	last    repeat
	chosen  choose.Choice // for the last collective
	one     host.Run
	single  [1]*host.Run
	pool    runPool // for groups
	barrier [1]byte

	kin   *siblings
	lanes int                    // number of lanes opened so far
	dev   *device                // nil: the communicator has no device
	accel atomic.Pointer[device] // the same as dev; nil again once it is closed
}

// ranks is the state that a communicator and its lanes share: the ranks, what they have agreed
// on, and any fault.
type ranks struct {
	rank, size int
	cfg        settings
	net        *bootstrap.Net
	session    *session.Session
	fault      transport.Fault
	broken     context.Context // done when there is a fault
	hang       hang.Comm
}

// Rank is the caller's rank.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.size }

// napMany is how long a goroutine that acts as several ranks sleeps when none of them has work.
const napMany = 50 * time.Microsecond

// enter claims the communicator for this goroutine. Where it is broken, the verdict names a, the
// operation that cannot start; nil if it is none.
func (c *Comm) enter(a *call) error {
	if !c.claim() {
		return c.refuse("an operation", ErrBusy)
	}
	if c.fault.Err() != nil || c.closed.Load() || c.suspended.Load() {
		next, what := c.seq+1, "an operation"
		c.leave()
		if a != nil {
			c.accel.Load().refuses(a, next)
			what = a.name(next)
		}
		return c.refuse(what, nil)
	}
	return nil
}

// refuse returns the error of an operation that cannot start.
func (c *Comm) refuse(what string, err error) error {
	switch f := c.fault.Err(); {
	case f != nil:
		c.fault.Settle()
		return c.wrap(what, f)
	case c.closed.Load():
		err = ErrDestroyed
	case err == nil:
		err = ErrSuspended
	}
	return &Error{Code: InvalidUsage, Rank: c.rank, Op: what, Peer: NoPeer, Err: err}
}

// A gate admits one operation at a time, and none once it is shut.
type gate struct {
	state atomic.Int32 // 1: an operation is in progress; 2: shut
}

// claim admits an operation, if none is in progress. It ends with leave.
func (g *gate) claim() bool { return g.state.CompareAndSwap(0, 1) }

func (g *gate) leave() { g.state.Store(0) }

// shut reports whether no operation is in progress, and if so keeps new ones from starting.
func (g *gate) shut() bool { return g.state.Load() == 2 || g.state.CompareAndSwap(0, 2) }

// settle shuts the gate as soon as no operation is in progress, and reports true. It reports false
// if there is a fault, which will end the operation.
func (g *gate) settle(fault *transport.Fault) bool {
	for !g.shut() {
		if fault.Err() != nil {
			return false
		}
		time.Sleep(100 * time.Microsecond)
	}
	return true
}

// do runs an operation, or adds it to the open group.
func (c *Comm) do(a *call) error {
	if c.group != nil {
		return c.collect(*a)
	}
	if a.Count == 0 {
		return a.check(c)
	}
	if err := c.enter(a); err != nil {
		return err
	}
	defer c.leave() // also when it panics: Abort waits for that
	return c.run(a)
}

// collect checks an operation and adds it to the group.
func (c *Comm) collect(a call) error {
	g := c.group
	if err := a.check(c); err != nil {
		g.err = err
		return err
	}
	if a.Count > 0 {
		if a.onDevice() {
			a.stream = c.dev.stream
		}
		g.calls = append(g.calls, groupCall{c: c, a: a})
	}
	return nil
}

func (c *Comm) run(a *call) error {
	if a.onDevice() {
		if err := a.check(c); err != nil || a.Count == 0 {
			return err
		}
		return c.dev.enqueue(a)
	}
	if c.dev != nil {
		c.dev.last = false
	}
	if l := &c.last; l.is(a) && l.fits(c, a) {
		c.seq++
		a.Send, a.Recv = a.Send[:len(l.op.Send)], a.Recv[:len(l.op.Recv)]
		c.one.Again(a.Send, a.Recv, c.seq)
		return c.drive(a)
	}
	c.last.plan = nil
	if err := a.check(c); err != nil || a.Count == 0 {
		return err
	}
	if a.Coll == pointToPoint && a.peer == c.rank {
		return c.errorOf(InvalidUsage, a.name(0), "a rank that sends to itself needs a group with the Recv in it")
	}
	if c.size == 1 {
		host.Alone(&a.Op)
		return nil
	}
	if err := c.start(&c.one, a); err != nil {
		return c.fail(a, err)
	}
	if a.Coll != pointToPoint {
		c.last = repeat{op: a.Op, plan: c.one.Plan(), inPlace: c.one.InPlace}
	}
	return c.drive(a)
}

// drive runs the operation that c.one was started with.
func (c *Comm) drive(a *call) error {
	if _, err := host.Drive(c.single[:], &c.watch); err != nil {
		return c.fail(a, err)
	}
	c.waits.Over()
	return nil
}

// A repeat is the previous operation. Programs call the same one again and again; it then needs
// no second check and choice.
type repeat struct {
	op      op.Op
	plan    *host.Plan // nil: there was no previous operation
	inPlace bool
}

func (l *repeat) is(a *call) bool {
	o := &l.op
	return l.plan != nil && o.Coll == a.Coll && o.Type == a.Type && o.Red == a.Red && o.Scaled == a.Scaled &&
		o.Count == a.Count && o.Root == a.Root && o.Scale == a.Scale
}

// fits reports whether the buffers are large enough, and separate or in place like those of the
// previous operation.
func (l *repeat) fits(c *Comm, a *call) bool {
	send, recv := len(l.op.Send), len(l.op.Recv)
	if len(a.Send) < send || len(a.Recv) < recv {
		return false
	}
	if !overlap(a.Send[:send], a.Recv[:recv]) {
		return !l.inPlace
	}
	return l.inPlace && a.inPlace(c.rank)
}

// start prepares a run for host.Drive.
func (c *Comm) start(r *host.Run, a *call) error {
	o := host.Op{Op: a.Op, InPlace: overlap(a.Send, a.Recv)}
	if a.Coll == op.AllToAll { // no schedule does it in place
		o.InPlace, o.Keep = false, o.InPlace
	}
	switch {
	case a.Red != Avg || !a.Coll.Reduces():
	case a.Type.Float():
		o.Scale, o.Scaled = 1/float64(c.size), true
	default:
		o.Divisor = c.size
	}
	if !c.session.Env.Unchecked {
		o.Header.Sign = a.Signature()
	}
	var (
		plan *host.Plan
		err  error
	)
	if a.Coll == pointToPoint {
		n := c.rcvd
		if a.sends() {
			n = c.sent
		}
		n[a.peer]++
		o.Header.Seq = n[a.peer]
		plan, err = c.links.PairPlan(a.peer, a.sends())
	} else {
		c.seq++
		o.Header.Seq = c.seq
		p := c.choose(a)
		o.Window, o.Copy = int(p.Window), p.Protocol == choose.LL
		c.chosen = p
		plan, err = c.links.Plan(a.Coll, p.Algorithm, a.Root, p.Channels)
	}
	if err != nil {
		return err
	}
	r.Start(plan, o)
	return nil
}

// choose returns the algorithm, protocol, channels and window for a collective.
func (c *Comm) choose(a *call) choose.Choice {
	switch f := c.forced; {
	case f == nil:
		return c.links.Pick(&a.Op)
	case f.coll == a.Coll:
		return f.Choice
	}
	return c.links.Tuner.Pick(a.Coll, a.Bytes())
}

// fail makes the communicator unusable, informs the other ranks, and returns the error for the
// caller.
func (c *Comm) fail(a *call, err error) error {
	if follows(err) {
		c.fault.Await(transport.Late)
	}
	if f := c.fault.Err(); f != nil {
		err = f // err is probably a consequence of the fault
	}
	e := c.wrap(a.name(c.seq), err)
	c.fault.Set(e)
	c.fault.Settle() // the others are to hear of it before the program ends
	c.accel.Load().refuses(a, c.seq)
	return e
}

// AsyncError returns what has gone wrong with the communicator since it was created, here or at
// another rank; nil if nothing has.
func (c *Comm) AsyncError() error {
	if err := c.fault.Err(); err != nil {
		return c.wrap("asynchronous", err)
	}
	return nil
}

// Exchange passes b to all ranks and returns the values of all ranks, by rank. It is for small
// values in addition to the data, uses the bootstrap's network, and is itself a collective.
func (c *Comm) Exchange(ctx context.Context, b []byte) ([][]byte, error) {
	all, err := c.net.AllGather(ctx, b)
	if err != nil {
		c.net.Heard()
		if f := c.fault.Err(); f != nil {
			err = f
		}
		return nil, c.wrap("Exchange", err)
	}
	return all, nil
}

// Chosen returns how the last collective was done, such as "two-shot/Simple". Only the goroutine
// that calls the operations may call it.
func (c *Comm) Chosen() string {
	if c.dev != nil && c.dev.last {
		return c.dev.Chosen()
	}
	if c.chosen.Algorithm == "" {
		return ""
	}
	return c.chosen.Algorithm + "/" + c.chosen.Protocol.String()
}

// Name is the communicator's name: Config.Name, or a generated name that no other communicator
// has.
func (c *Comm) Name() string {
	if c.cfg.name != "" {
		return c.cfg.name
	}
	return hex.EncodeToString(c.net.Key("name")[:4])
}

// String is for logs.
func (c *Comm) String() string { return fmt.Sprintf("rank %d of %d", c.rank, c.size) }
