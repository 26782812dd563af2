package hang

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/transport"
)

// Broken gives a verdict, in the background, about what has broken the communicator.
func (w *Watchdog) Broken(err error) { w.background(func() { w.ReportFault(err, "") }) }

// ReportFault gives a verdict about what has broken the communicator, once, if this rank waits or
// makes a call that is refused because of it: a rank that ends when all is done gives none. refused
// describes that call, "" if there is none. The verdict comes before the call returns, because the
// program may exit then. If several ranks could give the verdict, the one that knows most does: one
// on the host of the lost rank, then the lowest.
func (w *Watchdog) ReportFault(err error, refused string) {
	w.faultMu.Lock()
	defer w.faultMu.Unlock()
	cause, ranks, text := w.faultVerdict(err)
	if w.faultReported || text == "" {
		return
	}
	if refused != "" {
		text += ": this rank calls " + refused
	} else {
		now := w.state(true)
		if now.Does == executor.Idle {
			return
		}
		e, ok := w.log.At(now.Call)
		if !ok {
			e, ok = w.log.Last()
		}
		if !now.Graph.IsZero() {
			text += ": this rank waits in " + inGraph
		} else if ok {
			text += ": this rank waits in " + Operation(e)
		}
	}
	time.Sleep(min(time.Duration(w.turn(ranks))*faultTurn, faultTurns))
	w.faultReported = true
	w.mu.Lock()
	calls := w.log.Calls()
	known := w.reported == calls && calls > 0
	w.reported = calls
	w.mu.Unlock()
	if known {
		return
	}
	w.comm.Send(Report{Reported: true})
	w.report(Verdict{Cause: cause, Ranks: ranks, Text: text})
}

// How long each rank has to give its verdict before the next one does, and the most that a rank
// waits in total.
const (
	faultTurn  = 50 * time.Millisecond
	faultTurns = time.Second
)

// turn returns this rank's place in the order in which the remaining ranks give a verdict.
func (w *Watchdog) turn(lost []int) int {
	turn := 0
	for r := range w.comm.Rank {
		if !slices.Contains(lost, r) {
			turn++
		}
	}
	if len(lost) > 0 && w.processes[lost[0]].Host != w.processes[w.comm.Rank].Host {
		turn += w.comm.Size
	}
	return min(turn, 10)
}

// faultVerdict returns what an error implies about other ranks; "": nothing, or other ranks know
// better.
func (w *Watchdog) faultVerdict(err error) (Cause, []int, string) {
	p, ok := errors.AsType[*transport.PeerError](err)
	if !ok || p.Rank < 0 || p.Rank >= w.comm.Size {
		return "", nil, ""
	}
	name := w.processes.name(p.Rank)
	switch w.processes.Halted(w.comm.Rank)[p.Rank] {
	case Stopped:
		return Stopped, []int{p.Rank}, fmt.Sprintf("%s's process is stopped, by a signal or a debugger (%s)", name, p.What)
	case Dead:
		return Dead, []int{p.Rank}, fmt.Sprintf("%s's process has ended", name)
	}
	if w.processes[p.Rank].Host != w.processes[w.comm.Rank].Host {
		return Cut, []int{p.Rank}, fmt.Sprintf("%s is lost: %s: the network between its host and host %s carries nothing, or its process cannot run", name, p.What, w.processes[w.comm.Rank].Host)
	}
	return Silent, []int{p.Rank}, fmt.Sprintf("%s is lost: %s", name, p.What)
}
