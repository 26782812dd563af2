package coll

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/transport"
)

// A job hangs when a rank waits, on its device, for a rank that has not called the operation or
// cannot do it. The rank that has waited for ASSAY_HANG_AFTER asks all others for their progress,
// over the bootstrap's network, and gives a verdict from their answers. If several ranks ask at
// once, the lowest one gives it.

// heads is what a rank knows about the other ranks, and about its own waiting.
type heads struct {
	mu      sync.Mutex
	closed  bool
	of      map[int]head  // answers to this rank's last question, not to that of another rank
	heard   chan struct{} // signaled on each answer
	calls   uint64        // number of calls of this rank
	ended   uint64        // value of calls when all had ended
	since   time.Time     // when calls last changed
	lower   time.Time     // when a lower rank last asked
	busy    bool          // lookInto is running
	looked  time.Time
	place   uint64    // the first operation that has not ended, as State.Call
	placed  time.Time // when it was seen there first
	graphs  bool      // when all calls had ended: CUDA graphs may run more operations
	graph   time.Time // at the last look: since when an operation of a graph has waited for the same thing
	said    uint64    // value of calls at the last verdict, of this or another rank; 0: none
	mine    time.Time // when this rank gave the verdict; zero again once it continues
	differs bool      // ranks called different collectives, and sayDiffers is running
	asking  *question // the unanswered question; nil: none

	saying sync.Mutex // held while a fault's verdict is given
	faulty bool       // the verdict was given, by this or another rank; guarded by saying
}

// How often a rank checks whether it waits, and how long other ranks and the driver may take to
// answer.
const (
	lookEvery   = 250 * time.Millisecond
	hangAnswer  = 1200 * time.Millisecond
	driverSpeed = time.Second     // after this, its state is executor.Slow: not known
	driverStuck = 5 * time.Second // after this, its state is executor.Stuck: it does not answer
)

// do runs f in the background, unless the communicator is closed.
func (d *device) do(f func()) {
	d.heads.mu.Lock()
	defer d.heads.mu.Unlock()
	if !d.heads.closed {
		d.teller.Go(f)
	}
}

// A question is a query to the executor. The answer may take as long as the driver does.
type question struct {
	far  bool // asks for the progress of the oldest operation, not only whether there is one
	at   time.Time
	done chan struct{} // closed: there is an answer
	look executor.State
}

// look asks the executor whether an operation is in progress and, if far is set, how far the
// oldest one is, operations of CUDA graphs included.
func (d *device) look(far bool) executor.State {
	limit := time.After(driverSpeed)
	for {
		q := d.question(far)
		select {
		case <-q.done:
			if q.far || !far {
				return q.look
			} // else the pending question asked for less
		case <-limit:
			if time.Since(q.at) < driverStuck {
				return executor.State{Does: executor.Slow}
			}
			return executor.State{Does: executor.Stuck}
		}
	}
}

// question returns the unanswered question, or a new one: a driver that does not answer is not
// asked again.
func (d *device) question(far bool) *question {
	h := &d.heads
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking != nil {
		return h.asking
	}
	q := &question{far: far, at: time.Now(), done: make(chan struct{})}
	if h.closed { // there is no executor to ask
		q.look.Does = executor.Idle
		close(q.done)
		return q
	}
	h.asking = q
	d.teller.Go(func() {
		idle := d.Idle()
		if far {
			q.look = d.Progress()
		}
		if idle && q.look.Graph.IsZero() {
			q.look = executor.State{Does: executor.Idle, Graphs: q.look.Graphs}
		}
		h.mu.Lock()
		h.asking = nil
		h.mu.Unlock()
		close(q.done)
	})
	return q
}

// head returns this rank's head.
func (c *Comm) head(d *device) head {
	l := d.look(true)
	w := d.window()
	h := head{Peer: NoPeer, Does: l.Does, For: l.Ranks, Graph: !l.Graph.IsZero(), Near: c.near(d), Window: &w, Sent: counts(d.sent), Rcvd: counts(d.rcvd)}
	e, any := d.log.Last()
	if any {
		p := d.place(e)
		h.Call, h.P2P, h.Peer, h.Ago = p.Call, p.P2P, p.Peer, int(time.Since(e.At).Seconds())
	}
	if first, ok := d.log.At(l.Call); ok {
		p := d.place(first)
		p.Since = int(d.log.Calls() - l.Call)
		h.In = &p
	}
	if l.Does == executor.Behind || l.Does == executor.Idle {
		h.Others = c.elsewhere(d, l.Does == executor.Idle)
	}
	for o, od := range c.beside(d) {
		if last, ok := od.log.Last(); ok {
			if h.Calls == nil {
				h.Calls = map[string]uint32{}
			}
			h.Calls[o.Name()] = last.Seq
		}
	}
	for _, o := range d.log.Others() { // the latest one
		if !any || o.At.After(e.At) {
			h.Else, e.At, any = fmt.Sprintf("%s of communicator %q, %d s ago", Operation(o.Entry), o.Name, int(time.Since(o.At).Seconds())), o.At, true
		}
	}
	return h
}

// place returns where an entry of the recorder is.
func (d *device) place(e flight.Entry) place {
	p := place{Call: stall{Seq: e.Seq, Count: -1, Root: NoPeer}, P2P: int(e.P2P), Peer: int(e.Peer)}
	if s, ok := d.collective(e.Seq); ok {
		p.Call = s
	}
	return p
}

// Operation describes an entry of a flight recorder for people: "AllReduce of float32 with sum,
// 100 elements, operation #12".
func Operation(e flight.Entry) string {
	if e.P2P > 0 {
		return "Sends or Recvs"
	}
	return called(e).String()
}

// answer returns this rank's answer to a question: about the collective with the given number,
// or, for 0, its whole head.
func (c *Comm) answer(d *device, number uint32) head {
	if number == 0 {
		return c.head(d)
	}
	h := head{Peer: NoPeer, Does: executor.Unknown}
	if s, ok := d.collective(number); ok {
		h.Was = &s
	}
	return h
}

// halted maps the state of a process that does not run to the cause in a verdict.
var halted = map[flight.State]Cause{flight.Stopped: Stopped, flight.Ended: Dead}

// near returns the ranks of this host with processes that do not run, and why.
func (c *Comm) near(d *device) map[int]Cause {
	var found map[int]Cause
	mine := d.who[c.rank]
	for r, w := range d.who {
		if w.Host != mine.Host || w.Namespace != mine.Namespace || w.Namespace == "" || w.PID == mine.PID { // without a namespace, a PID may be another process's
			continue
		}
		if cause, ok := halted[flight.StateOf(w.PID)]; ok {
			if found == nil {
				found = map[int]Cause{}
			}
			found[r] = cause
		}
	}
	return found
}

// here describes this rank's process to the other ranks.
func here(device, job int) who {
	name, _ := os.Hostname()
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return who{name, os.Getpid(), device, ns, job}
}

// firstLook is how long after its last call a rank looks for the first time whether it waits, if a
// verdict is due after the given time.
func firstLook(due time.Duration) time.Duration { return min(time.Second, due/2) }

// lookForHang starts lookInto when it is due. It is called every lookEvery.
func (c *Comm) lookForHang(d *device) {
	h := &d.heads
	calls := d.log.Calls()
	h.mu.Lock()
	defer h.mu.Unlock()
	if calls != h.calls || h.since.IsZero() {
		h.calls, h.since, h.lower = calls, time.Now(), time.Time{}
		c.resumed(d)
	}
	limit := c.cfg.HangAfter
	due := h.since.Add(limit)
	if h.ended == calls {
		if due = h.graph.Add(limit); h.graph.IsZero() {
			due = time.Now().Add(limit)
		}
	}
	switch {
	case h.closed || h.busy || limit == 0 || time.Since(h.since) < firstLook(limit):
	case h.ended == calls && !h.graphs, h.ended != calls && h.said == calls && h.mine.IsZero(): // all has ended, or another rank gave the verdict
	case time.Since(h.looked) < time.Second && (time.Now().Before(due) || h.looked.After(due)), time.Since(h.lower) < 3*hangAnswer:
	default:
		h.busy, h.looked = true, time.Now()
		d.teller.Go(func() {
			c.lookInto(d, calls)
			h.mu.Lock()
			h.busy = false
			h.mu.Unlock()
		})
	}
}

// resumed reports that a communicator continues after this rank's verdict. The caller holds the
// lock of heads.
func (c *Comm) resumed(d *device) {
	h := &d.heads
	if !h.mine.IsZero() {
		text := fmt.Sprintf("it continues, %d s after it was reported as hung", int(time.Since(h.mine).Seconds()))
		h.mine = time.Time{}
		if !h.closed {
			d.teller.Go(func() { c.say(d, Verdict{Cause: Resumed, Text: text}) })
		}
	}
}

// lookInto determines whether and why this rank, after the given number of calls, waits.
func (c *Comm) lookInto(d *device, calls uint64) {
	h := &d.heads
	now := d.look(true)
	idle, graph := now.Does == executor.Idle, !now.Graph.IsZero()
	h.mu.Lock()
	since := h.since
	if (idle || graph) && d.log.Calls() == calls {
		if idle || now.Graph != h.graph { // a different wait of a graph, perhaps after a verdict
			c.resumed(d)
			h.said = 0
		}
		h.ended, h.graph, h.graphs = calls, now.Graph, now.Graphs
		d.log.Ended(calls)
	}
	if now.Call > 0 {
		d.log.Ended(now.Call - 1)
	}
	if now.Call != h.place {
		h.place, h.placed = now.Call, time.Now()
	}
	if graph {
		since = now.Graph
	} else { // what was there at the first look may have been there since the call
		late := min(firstLook(c.cfg.HangAfter)+lookEvery, c.cfg.HangAfter/2)
		for _, seen := range [...]time.Time{h.placed, now.Since} {
			if at := seen.Add(-late); at.After(since) {
				since = at
			}
		}
	}
	enough := idle || h.said == calls || time.Since(since) < c.cfg.HangAfter
	h.mu.Unlock()
	if enough {
		return
	}
	mine := c.head(d)
	if !mine.waits() || !c.ask(d, mine) {
		return
	}
	again := d.look(true)
	h.mu.Lock()
	g := hang{c.size, c.rank, d.who, h.of, d.collective}
	g.heads[c.rank] = mine
	if r, seq, ok := g.differs(); ok {
		h.mu.Unlock()
		if was, ok := d.collective(seq); ok {
			sign, _ := g.heads[r].Window.sign(seq)
			c.sayDiffers(d, r, was, stall{seq, sign, -1, NoPeer})
		}
		return
	}
	cause, ranks, text, ok := g.judge()
	states := g.states()
	ok = ok && again.Does != executor.Idle && again.Graph.Equal(now.Graph) && again.Since.Equal(now.Since) && again.Call == now.Call && d.log.Calls() == calls && h.said != calls && time.Since(h.lower) > 3*hangAnswer && c.fault.Err() == nil
	if ok {
		h.said, h.mine = calls, time.Now()
	}
	h.mu.Unlock()
	if !ok {
		return
	}
	mine.Ask, mine.Said = false, true
	c.tellHead(mine)
	c.say(d, Verdict{Cause: cause, Ranks: ranks, Text: "it stands still: " + text, States: states})
}

// ask asks the other ranks and waits until all have answered, but no longer than hangAnswer. It
// returns false if the communicator was closed or broken meanwhile.
func (c *Comm) ask(d *device, mine head) bool {
	h := &d.heads
	h.mu.Lock()
	h.of, h.heard = map[int]head{}, make(chan struct{}, c.size)
	heard := h.heard
	h.mu.Unlock()
	mine.Ask = true
	c.tellHead(mine)
	limit := time.After(hangAnswer)
	for {
		h.mu.Lock()
		n := len(h.of)
		h.mu.Unlock()
		if n >= c.size-1 {
			return true
		}
		select {
		case <-heard:
		case <-limit:
			return true
		case <-d.quiet:
			return false
		case <-c.broken.Done():
			return false
		}
	}
}

func (c *Comm) tellHead(h head) {
	if payload, err := json.Marshal(report{Head: &h}); err == nil {
		c.net.Report(payload)
	}
}

// heardHead records a rank's head, and answers if it is a question. The bootstrap calls it.
func (c *Comm) heardHead(from int, theirs head) {
	d := c.accel.Load()
	if d == nil {
		return
	}
	h := &d.heads
	h.mu.Lock()
	if h.of != nil && !theirs.Said && !theirs.Ask && theirs.To == c.rank {
		h.of[from] = theirs
		select {
		case h.heard <- struct{}{}:
		default:
		}
	}
	if theirs.Ask && from < c.rank {
		h.lower = time.Now()
	}
	if theirs.Said {
		h.said = d.log.Calls()
	}
	// If two ranks ask at the same time, either the lower one's question arrives before the other
	// one gives its verdict, which it then drops, or the lower one gets this answer.
	said := !h.mine.IsZero() && time.Since(h.mine) < 3*hangAnswer
	h.mu.Unlock()
	if theirs.Ask {
		d.do(func() {
			if said && theirs.Number == 0 {
				c.tellHead(head{Said: true, Peer: NoPeer})
			}
			answer := c.answer(d, theirs.Number)
			answer.To = from
			c.tellHead(answer)
		})
	}
}

// say completes a verdict, writes it to a file, and passes it to Config.OnHang or the log.
func (c *Comm) say(d *device, v Verdict) {
	v.Schema, v.Time, v.Communicator, v.Size, v.By = VerdictSchema, time.Now(), c.Name(), c.size, c.rank
	d.log.Say(v.Text)
	if v.Cause != Resumed {
		if err := v.write(c.cfg.HangDir); err != nil {
			c.cfg.log.Warnf("the verdict is in no file: %v", err)
		}
	}
	if c.cfg.onHang != nil {
		c.cfg.onHang(v)
		return
	}
	c.cfg.log.Warnf("%v", v)
}

// sayFault gives a verdict about what has broken the communicator, once, if this rank waits or
// makes a call that is refused because of it: a rank that ends when all is done gives none. If
// several ranks could give it, the one that knows most does: one on the host of the lost rank,
// then the lowest.
func (c *Comm) sayFault(d *device, err error, refused string) {
	h := &d.heads
	h.saying.Lock()
	defer h.saying.Unlock()
	cause, ranks, text := c.faultVerdict(d, err)
	if h.faulty || text == "" {
		return
	}
	if refused != "" {
		text += ": this rank calls " + refused
	} else {
		now := d.look(true)
		if now.Does == executor.Idle {
			return
		}
		e, ok := d.log.At(now.Call)
		if !ok {
			e, ok = d.log.Last()
		}
		if !now.Graph.IsZero() {
			text += ": this rank waits in " + inGraph
		} else if ok {
			text += ": this rank waits in " + Operation(e)
		}
	}
	time.Sleep(min(time.Duration(c.turn(d, ranks))*faultTurn, faultTurns))
	h.faulty = true
	h.mu.Lock()
	calls := d.log.Calls()
	said := h.said == calls && calls > 0
	h.said = calls
	h.mu.Unlock()
	if said {
		return
	}
	c.tellHead(head{Said: true, Peer: NoPeer})
	c.say(d, Verdict{Cause: cause, Ranks: ranks, Text: text})
}

// refuses reports the verdict about what has broken the communicator before a call with a number
// returns the error: the program may exit because of it.
func (c *Comm) refuses(a *call, seq uint32) {
	d, err := c.accel.Load(), c.fault.Err()
	if d == nil || err == nil || !c.cfg.asNCCL {
		return
	}
	what := a.name(0)
	if a.Coll != pointToPoint {
		what = fmt.Sprintf("%v, operation #%d", a.Coll, seq)
	}
	c.sayFault(d, err, what)
}

// sayDiffers determines which ranks called a different collective than most, once it is known
// that one has, and breaks the communicator with that error.
func (c *Comm) sayDiffers(d *device, from int, mine, theirs stall) {
	h := &d.heads
	h.mu.Lock()
	known := h.differs
	h.differs = true
	h.mu.Unlock()
	if known {
		return
	}
	g := hang{size: c.size, by: c.rank, who: d.who}
	for range differsAsked {
		if !c.ask(d, head{Peer: NoPeer, Number: mine.Seq, Was: &mine, Does: executor.Unknown}) {
			return
		}
		h.mu.Lock()
		g.heads = maps.Clone(h.of)
		h.mu.Unlock()
		if g.heads[from].Was == nil { // from waits in something that it did not call: it destroys the communicator
			g.heads[from] = head{Was: &theirs}
		}
		g.heads[c.rank] = head{Was: &mine}
		if g.known() {
			break
		}
		time.Sleep(lookEvery) // a rank has not reached this collective yet
	}
	h.mu.Lock()
	lower := h.lower
	h.mu.Unlock()
	if time.Since(lower) < 3*hangAnswer { // a lower rank gives the verdict
		select {
		case <-c.broken.Done():
			return
		case <-d.quiet:
			return
		case <-time.After(hangAnswer):
		}
	}
	ranks, text := g.differing(mine.Seq)
	err := c.errorOf(InvalidUsage, "asynchronous", "%s", text)
	err.Peer = from
	if c.fault.Set(err) {
		c.tellHead(head{Said: true, Peer: NoPeer})
		c.say(d, Verdict{Cause: Differs, Ranks: ranks, Text: text})
	}
}

// differsAsked is how many times, at most, ranks are asked what they called, until all have
// called it.
const differsAsked = 4

// How long each rank has to give its verdict before the next one does, and the most that a rank
// waits in total.
const (
	faultTurn  = 50 * time.Millisecond
	faultTurns = time.Second
)

// turn returns this rank's place in the order in which the remaining ranks give a verdict.
func (c *Comm) turn(d *device, lost []int) int {
	turn := 0
	for r := range c.rank {
		if !slices.Contains(lost, r) {
			turn++
		}
	}
	if len(lost) > 0 && d.who[lost[0]].Host != d.who[c.rank].Host {
		turn += c.size
	}
	return min(turn, 10)
}

// faultVerdict returns what an error implies about other ranks; "": nothing, or other ranks know
// better.
func (c *Comm) faultVerdict(d *device, err error) (Cause, []int, string) {
	g := hang{size: c.size, by: c.rank, who: d.who}
	p, ok := errors.AsType[*transport.PeerError](err)
	if !ok || p.Rank < 0 || p.Rank >= c.size {
		return "", nil, ""
	}
	name := g.name(p.Rank)
	switch c.near(d)[p.Rank] {
	case Stopped:
		return Stopped, []int{p.Rank}, fmt.Sprintf("%s's process is stopped, by a signal or a debugger (%s)", name, p.What)
	case Dead:
		return Dead, []int{p.Rank}, fmt.Sprintf("%s's process has ended", name)
	}
	if d.who[p.Rank].Host != d.who[c.rank].Host {
		return Cut, []int{p.Rank}, fmt.Sprintf("%s is lost: %s: the network between its host and host %s carries nothing, or its process cannot run", name, p.What, d.who[c.rank].Host)
	}
	return Silent, []int{p.Rank}, fmt.Sprintf("%s is lost: %s", name, p.What)
}
