package host

import (
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/elem"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Waiter is what a rank calls while it cannot advance. It belongs to one goroutine.
type Waiter interface {
	// Wait returns when it may be worth looking again, and whether that took long. idle counts
	// the calls since the last progress, from 0.
	Wait(idle int) (long bool)
}

// A Watch says how long to wait for peers, and what to do about it.
type Watch struct {
	Waiter  Waiter
	Fault   func() error  // returns the communicator's fault, if any
	Timeout time.Duration // limit without any progress; 0: none
	Slow    time.Duration // time without any progress until Late is called; 0: never
	// Late gets the index of the waiting run in Drive's runs, and its operation.
	Late func(run int, h transport.Header, b Blocked, since time.Duration)
}

// Blocked says what a run is waiting for.
type Blocked struct {
	Peer int  // the rank, or -1 for all of them
	Send bool // waiting for the peer to receive messages; else for a message from it
	Step int
	Of   int
}

func (b Blocked) String() string {
	who := fmt.Sprintf("rank %d", b.Peer)
	if b.Peer < 0 {
		who = "the other ranks"
	}
	if b.Send {
		return fmt.Sprintf("%s to take a message (step %d of %d)", who, b.Step+1, b.Of)
	}
	return fmt.Sprintf("a message from %s (step %d of %d)", who, b.Step+1, b.Of)
}

// A TimeoutError says that nothing moved for too long.
type TimeoutError struct {
	Blocked Blocked
	After   time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("waited %v for %v", e.After.Round(time.Millisecond), e.Blocked)
}

// Drive runs the runs side by side until all are done, one fails, or there is a fault. It returns
// the index of the run that failed, or -1.
func Drive(runs []*Run, w *Watch) (int, error) {
	idle, tick := 0, 0
	var since time.Time
	next := w.Slow // when to call Late
	for {
		moved, live := poll(runs)
		if live == 0 {
			return -1, nil
		}
		if moved {
			idle, since, next = 0, time.Time{}, w.Slow
			continue
		}
		for i, r := range runs {
			if r.failed != nil {
				return i, r.failed
			}
		}
		if err := w.Fault(); err != nil {
			return -1, err
		}
		long := w.Waiter.Wait(idle)
		idle++
		// The clock is read only now and then: a reading costs as much as a message.
		if tick++; tick&255 != 0 && !long {
			continue
		}
		now := time.Now()
		if since.IsZero() {
			since = now
			continue
		}
		waited := now.Sub(since)
		if w.Timeout > 0 && waited > w.Timeout {
			i, b := blocked(runs)
			return i, &TimeoutError{b, waited}
		}
		if w.Slow > 0 && waited > next && w.Late != nil {
			next += w.Slow
			if i, b := blocked(runs); i >= 0 {
				w.Late(i, runs[i].Header, b, waited)
			}
		}
	}
}

// poll advances every run that may run as far as possible.
func poll(runs []*Run) (moved bool, live int) {
	for _, r := range runs {
		if r.finished() {
			continue
		}
		if !r.begun {
			if !r.ready() {
				live++
				continue
			}
			r.begin()
			moved = true
			if r.finished() {
				continue
			}
		}
		live++
		if r.after != nil && !r.after.finished() {
			continue
		}
		if r.live > 0 {
			for i := range r.lanes {
				if r.lanes[i].pc >= 0 && r.advance(&r.lanes[i]) {
					moved = true
				}
			}
		}
		drained := r.drained() // also while lanes wait: it continues sends that could not finish at once
		if r.live == 0 && drained {
			r.end()
			moved = true
			live--
		}
	}
	return moved, live
}

// ready reports whether what the run waits for has happened.
func (r *Run) ready() bool {
	for n := len(r.waits); n > 0; n-- {
		if w := r.waits[n-1]; !w.run.finished() && !(w.begin && w.run.begun) {
			return false
		}
		r.waits = r.waits[:n-1]
	}
	return true
}

// begin does what comes before the first step.
func (r *Run) begin() {
	r.begun = true
	if r.Keep {
		r.Send = slices.Clone(r.Send)
	}
	if r.from != nil {
		r.Send, r.from.Send = r.from.Send, nil
	}
	if r.plan == nil {
		Alone(&r.Op.Op)
		r.live = -1
	}
}

func (r *Run) finished() bool { return r.live < 0 }

// drained reports whether no posted message is still being sent from the caller's memory.
func (r *Run) drained() bool {
	all := true
	for _, t := range r.plan.pushed {
		if !t.Idle() {
			all = false
		}
	}
	return all
}

// end does what comes after the last step: it divides the sums of an integer average.
func (r *Run) end() {
	if r.Divisor > 1 {
		elem.Divide(r.Type, r.Recv, r.Divisor)
	}
	if r.Keep {
		r.Send = nil
	}
	r.live = -1
}

// blocked returns the run of the first lane that waits, and what it waits for.
func blocked(runs []*Run) (int, Blocked) {
	for k, r := range runs {
		if r.finished() || !r.begun || r.after != nil && !r.after.finished() {
			continue
		}
		for i := range r.lanes {
			if l := &r.lanes[i]; l.pc >= 0 {
				st := &l.plan.steps[l.pc]
				b := Blocked{Peer: int(st.from), Step: l.pc, Of: len(l.plan.steps)}
				if st.rx == nil || l.got {
					b.Send, b.Peer = true, int(st.to)
				} else if _, _, ok := peekable(l, st); ok {
					b.Send, b.Peer = true, int(st.to)
				}
				b.Peer = max(b.Peer, -1)
				return k, b
			}
		}
		return k, Blocked{Peer: -1, Send: true}
	}
	return -1, Blocked{Peer: -1}
}

func peekable(l *lane, st *step) ([]byte, transport.Header, bool) {
	if l.posted {
		return nil, transport.Header{}, false
	}
	return st.rx.Peek()
}

// Queue keeps the run from using its connections until another one is done.
func (r *Run) Queue(other *Run) { r.after = other }

// After makes the run begin when another one is done.
func (r *Run) After(other *Run) { r.waits = append(r.waits, wait{run: other}) }

// AfterBegin makes the run begin when another one has begun.
func (r *Run) AfterBegin(other *Run) { r.waits = append(r.waits, wait{other, true}) }
