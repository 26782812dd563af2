package coll

import (
	"errors"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/host"
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
	batch []*executor.Op
	from  []int // of batch: the index in calls
}

type groupCall struct {
	c *Comm
	a call
}

// Start begins a group, or a group within one. Operations of communicators that have joined (Add)
// are collected until the End that matches the first Start.
func (g *Group) Start() { g.depth++ }

// Add makes a communicator's operations part of the group until it ends.
func (g *Group) Add(comms ...*Comm) {
	for _, c := range comms {
		if c.group == nil {
			c.group = g
			g.comms = append(g.comms, c)
		}
	}
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

// A tail is the last run on some connections. The next run on them follows it.
type tail struct {
	c    *Comm
	peer int // of a Send or Recv; NoPeer for collectives
	send bool
	run  *host.Run
}

// follow makes a run wait for the one before it on the same connections.
func (g *Group) follow(c *Comm, a *call, r *host.Run) {
	t := tail{c: c, peer: NoPeer, run: r}
	if a.Coll == pointToPoint {
		t.peer, t.send = a.peer, a.sends()
	}
	for i := range g.tails {
		o := &g.tails[i]
		if o.c == t.c && o.peer == t.peer && o.send == t.send {
			r.After(o.run)
			o.run = r
			return
		}
	}
	g.tails = append(g.tails, t)
}

// launch runs all collected operations.
func (g *Group) launch() error {
	if len(g.calls) == 0 {
		return nil
	}
	g.runs, g.which, g.tails = g.runs[:0], g.which[:0], g.tails[:0]
	for _, c := range g.comms {
		if err := c.enter(); err != nil {
			for i := range g.calls {
				if g.calls[i].c == c {
					c.refuses(&g.calls[i].a)
					break
				}
			}
			return err
		}
		defer c.leave()
		c.pooled = 0
		if err := c.toSelf(g.calls); err != nil {
			return err
		}
	}
	if err := g.enqueue(); err != nil {
		return err
	}
	for i := range g.calls {
		c, a := g.calls[i].c, &g.calls[i].a
		if a.onDevice() {
			continue
		}
		if c.size == 1 && a.Coll != pointToPoint {
			a.alone()
		}
		if c.size == 1 || a.Coll == pointToPoint && a.peer == c.rank {
			continue
		}
		r := c.fromPool()
		if err := c.start(r, a); err != nil {
			return c.fail(a, err)
		}
		g.follow(c, a, r)
		g.runs, g.which = append(g.runs, r), append(g.which, i)
	}
	if len(g.runs) == 0 {
		return nil
	}
	if i, err := host.Drive(g.runs, g.watch()); err != nil {
		return g.failed(i, err)
	}
	for i := range g.calls {
		if !g.calls[i].a.onDevice() {
			g.calls[i].c.finish(&g.calls[i].a)
		}
	}
	return nil
}

// failed reports an error of run i to all communicators of the group: all of them have operations
// that stopped halfway.
func (g *Group) failed(i int, err error) error {
	return g.failedAt(g.which[max(i, 0)], err)
}

// failedAt is failed for call i.
func (g *Group) failedAt(i int, err error) error {
	at := &g.calls[i]
	first := at.c.fail(&at.a, err)
	for _, c := range g.comms {
		if c != at.c {
			_ = c.fail(&at.a, first)
		}
	}
	return first
}

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
	w.Late = func(i int, h transport.Header, b host.Blocked, d time.Duration) { g.calls[g.which[i]].c.late(h, b, d) }
	return &w
}
