package coll

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Group collects operations and runs them together. It belongs to one
// goroutine. The zero value is ready.
type Group struct {
	depth int
	comms []*Comm
	calls []groupCall
	err   error

	// Used by launch, and reused by the next one.
	runs  []*host.Run
	which []int // of runs: the index in calls
	tails []tail
	spans []span
	batch []*executor.Op
	from  []int // of batch: the index in calls
}

type groupCall struct {
	c   *Comm
	a   call
	run *host.Run // set by launch, for operations on host memory
}

// Start begins a group, or a group within one. Operations of communicators that have joined (Add)
// are collected until the End that matches the first Start.
func (g *Group) Start() { g.depth++ }

// Add makes a communicator's operations part of the group until it ends.
func (g *Group) Add(comms ...*Comm) {
	for _, c := range comms {
		switch c.group {
		case nil:
			c.group = g
			g.comms = append(g.comms, c)
		case g:
		default:
			g.err = c.errorOf(InvalidUsage, "GroupStart", "the communicator belongs to another group, which has not ended")
		}
	}
}

// collect checks an operation of a communicator and adds it.
func (g *Group) collect(c *Comm, a call) error {
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

// End matches the last Start. The outermost End runs all collected operations and returns the
// first error of any.
func (g *Group) End() error {
	if g.depth == 0 {
		return &Error{Code: InvalidUsage, Rank: NoPeer, Op: "GroupEnd", Peer: NoPeer, Err: errors.New("there is no Start that it ends")}
	}
	if g.depth--; g.depth > 0 {
		return nil
	}
	err := g.err
	if err == nil {
		err = g.launch()
	}
	g.clear()
	return err
}

// Cancel ends the group, nested ones included, without running any operation.
func (g *Group) Cancel() {
	g.depth = 0
	g.clear()
}

func (g *Group) clear() {
	for _, c := range g.comms {
		c.group = nil
	}
	clear(g.comms)
	clear(g.calls)
	g.comms, g.calls, g.err = g.comms[:0], g.calls[:0], nil
}

// A tail is the last run on some connections.
type tail struct {
	c    *Comm
	peer int // of a Send or Recv; NoPeer for collectives
	send bool
	run  *host.Run
}

// follow makes a collective begin after the one before it, and Sends and Recvs use a connection in
// their order.
func (g *Group) follow(c *Comm, a *call, r *host.Run) {
	t := tail{c: c, peer: NoPeer, run: r}
	if a.Coll == pointToPoint {
		t.peer, t.send = a.peer, a.sends()
	}
	for i := range g.tails {
		o := &g.tails[i]
		if o.c == t.c && o.peer == t.peer && o.send == t.send {
			if t.peer == NoPeer {
				r.After(o.run)
			} else {
				r.Queue(o.run)
			}
			o.run = r
			return
		}
	}
	g.tails = append(g.tails, t)
}

// add returns a run for call i.
func (g *Group) add(i int) *host.Run {
	r := g.calls[i].c.pool.next()
	g.calls[i].run = r
	g.runs, g.which = append(g.runs, r), append(g.which, i)
	return r
}

// receiveFromSelf prepares call i, a Recv of what its own rank sends.
func (g *Group) receiveFromSelf(i int) {
	a := &g.calls[i].a
	g.add(i).StartLocal(host.Op{Op: a.Op}, g.calls[a.pair].run)
}

// A span is memory that a call reads or writes.
type span struct {
	from, to uintptr
	kind     int // bit set of writes and exchanges
}

const (
	writes    = 1
	exchanges = 2 // a Send or Recv, not a collective
)

// orderMemory makes a communicator's Sends and Recvs follow the calls before them that use the
// same memory, and collectives follow such Sends and Recvs, so that the result is that of one call
// after the other. Nothing waits for the end of a Send, because the other rank may be late to
// receive: a Send whose memory changes afterwards keeps a copy.
func (g *Group) orderMemory(c *Comm) {
	if !g.sharesMemory(c) {
		return
	}
	for k, i := range g.which {
		later := &g.calls[i]
		if later.c != c {
			continue
		}
		for _, j := range g.which[:k] {
			earlier := &g.calls[j]
			a, b := &earlier.a, &later.a
			switch {
			case earlier.c != c, a.Coll != pointToPoint && b.Coll != pointToPoint:
			case !overlap(a.Recv, b.Send) && !overlap(a.Recv, b.Recv) && !overlap(a.Send, b.Recv):
			case a.Coll == pointToPoint && a.sends():
				earlier.run.Keep = true
				later.run.AfterBegin(earlier.run)
			default:
				later.run.After(earlier.run)
			}
		}
	}
}

// sharesMemory reports whether a Send or Recv of a communicator uses memory that another of its
// calls writes, or writes memory that another one uses.
func (g *Group) sharesMemory(c *Comm) bool {
	g.spans = g.spans[:0]
	all := 0
	for _, i := range g.which {
		a := &g.calls[i].a
		if g.calls[i].c != c {
			continue
		}
		kind := 0
		if a.Coll == pointToPoint {
			kind = exchanges
		}
		all |= kind
		for w, b := range [][]byte{a.Send, a.Recv} {
			if from := op.Addr(b); len(b) > 0 {
				g.spans = append(g.spans, span{from, from + uintptr(len(b)), kind | w*writes})
			}
		}
	}
	if all&exchanges == 0 {
		return false
	}
	slices.SortFunc(g.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var ends [4]uintptr // by kind: where memory of the spans so far ends
	for _, s := range g.spans {
		for kind, end := range ends {
			if s.from < end && (kind|s.kind)&writes != 0 && (kind|s.kind)&exchanges != 0 {
				return true
			}
		}
		ends[s.kind] = max(ends[s.kind], s.to)
	}
	return false
}

// launch runs all collected operations.
func (g *Group) launch() error {
	if len(g.calls) == 0 {
		return nil
	}
	g.runs, g.which, g.tails = g.runs[:0], g.which[:0], g.tails[:0]
	for _, c := range g.comms {
		var first *call
		if i := slices.IndexFunc(g.calls, func(gc groupCall) bool { return gc.c == c }); i >= 0 {
			first = &g.calls[i].a
		}
		if err := c.enter(first); err != nil {
			if c.fault.Err() != nil && CodeOf(err) != InvalidUsage { // the other ranks wait for what does not begin
				g.failOthers(c, err)
			}
			return err
		}
		defer c.leave()
		c.pool.used = 0
		if err := g.pairSelf(c); err != nil {
			return err
		}
	}
	if err := g.enqueue(); err != nil {
		return err
	}
	for i := range g.calls {
		c, a := g.calls[i].c, &g.calls[i].a
		self := a.Coll == pointToPoint && a.peer == c.rank
		switch {
		case a.onDevice(), self && !a.sends() && a.pair > i: // it comes with its Send
		case self && a.sends():
			g.add(i).StartLocal(host.Op{Op: a.Op}, nil)
			if a.pair < i {
				g.receiveFromSelf(a.pair)
			}
		case self:
			g.receiveFromSelf(i)
		default:
			r := g.add(i)
			if c.size == 1 {
				r.StartLocal(host.Op{Op: a.Op}, nil)
			} else if err := c.start(r, a); err != nil {
				return g.failedAt(i, err)
			}
			g.follow(c, a, r)
		}
	}
	if len(g.runs) == 0 {
		return nil
	}
	for _, c := range g.comms {
		g.orderMemory(c)
	}
	if i, err := host.Drive(g.runs, g.watch()); err != nil {
		return g.failed(i, err)
	}
	for _, c := range g.comms {
		c.waits.Over()
	}
	return nil
}

// pairSelf pairs a rank's Sends and Recvs to itself.
func (g *Group) pairSelf(c *Comm) error {
	var sends, recvs []int
	for i := range g.calls {
		a := &g.calls[i].a
		if g.calls[i].c != c || a.Coll != pointToPoint || a.peer != c.rank {
			continue
		}
		if a.sends() {
			sends = append(sends, i)
		} else {
			recvs = append(recvs, i)
		}
	}
	if len(sends) != len(recvs) {
		return c.errorOf(InvalidUsage, "Send to itself", "the group has %d Sends and %d Recvs", len(sends), len(recvs))
	}
	for i := range sends {
		s, r := &g.calls[sends[i]].a, &g.calls[recvs[i]].a
		if s.Count != r.Count || s.Type != r.Type {
			return c.errorOf(InvalidUsage, "Send to itself", "%d %v are sent and %d %v received", s.Count, s.Type, r.Count, r.Type)
		}
		if s.onDevice() != r.onDevice() {
			return c.errorOf(InvalidUsage, "Send to itself", "one buffer is the device's and the other the processor's")
		}
		s.pair, r.pair = recvs[i], sends[i]
	}
	return nil
}

// failed reports an error of run i to all communicators of the group: all of them have operations
// that stopped halfway.
func (g *Group) failed(i int, err error) error {
	if i >= 0 {
		return g.failedAt(g.which[i], err)
	}
	for k := range g.calls { // the communicator with the fault
		if g.calls[k].c.fault.Err() != nil {
			return g.failedAt(k, err)
		}
	}
	for _, c := range g.comms { // one without a call
		if c.fault.Err() != nil {
			first := c.wrap("a group", err)
			g.failOthers(c, first)
			return first
		}
	}
	return g.failedAt(g.which[0], err)
}

// failOthers breaks the group's communicators but one, whose ranks have other numbers. A rank that
// aborts one communicator often does so because another failed: the report of that may be under way.
func (g *Group) failOthers(but *Comm, first error) {
	until := time.Now()
	if errors.Is(first, ErrAborted) && CodeOf(first) == RemoteError {
		until = until.Add(transport.Late)
	}
	for _, c := range g.comms {
		if c != but {
			c.fault.Await(time.Until(until))
			c.fault.Set(c.errorOf(SystemError, "a group", "another communicator of the group has failed: %v", first))
		}
	}
}

// failedAt is failed for call i.
func (g *Group) failedAt(i int, err error) error {
	at := &g.calls[i]
	first := at.c.fail(&at.a, err)
	g.failOthers(at.c, first)
	return first
}

// napMany is how long a goroutine that acts as several ranks sleeps when none of them has work.
const napMany = 50 * time.Microsecond

// watch returns how the group waits: like its communicator if it has only one, else without
// sleeping for long on the bell of any of them.
func (g *Group) watch() *host.Watch {
	if len(g.comms) == 1 {
		return &g.comms[0].watch
	}
	w := g.comms[0].watch
	w.Waiter = &host.Spinner{Spin: 64, Yield: 256, Nap: napMany}
	w.Fault = func() error {
		for _, c := range g.comms {
			if err := c.fault.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	w.Late = func(i int, h transport.Header, b host.Blocked, d time.Duration) {
		g.calls[g.which[i]].c.waits.Late(h, b, d)
	}
	return &w
}
