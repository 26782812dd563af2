package hang

import (
	"fmt"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// head returns this rank's head.
func (w *Watchdog) head() head {
	l := w.state(true)
	signs := w.window()
	h := head{Peer: op.NoPeer, Does: l.Does, For: l.Ranks, Graph: !l.Graph.IsZero(), Near: w.processes.Halted(w.comm.Rank), Window: &signs, Sent: counts(w.sent), Rcvd: counts(w.rcvd)}
	e, any := w.log.Last()
	if any {
		p := w.place(e)
		h.Call, h.P2P, h.Peer, h.Ago = p.Call, p.P2P, p.Peer, int(time.Since(e.At).Seconds())
	}
	if first, ok := w.log.At(l.Call); ok {
		p := w.place(first)
		p.Since = int(w.log.Calls() - l.Call)
		h.In = &p
	}
	if l.Does == executor.Behind || l.Does == executor.Idle {
		h.Others = w.elsewhere(l.Does == executor.Idle)
	}
	for o := range w.beside() {
		if last, ok := o.log.Last(); ok {
			if h.Calls == nil {
				h.Calls = map[string]uint32{}
			}
			h.Calls[o.comm.Name] = last.Seq
		}
	}
	for _, o := range w.log.Others() { // the latest one
		if !any || o.At.After(e.At) {
			h.Else, e.At, any = fmt.Sprintf("%s of communicator %q, %d s ago", Operation(o.Entry), o.Name, int(time.Since(o.At).Seconds())), o.At, true
		}
	}
	return h
}

// answer returns this rank's answer to a question: about the collective with the given number,
// or, for 0, its whole head.
func (w *Watchdog) answer(number uint32) head {
	if number == 0 {
		return w.head()
	}
	h := head{Peer: op.NoPeer, Does: executor.Unknown}
	if s, ok := w.collective(number); ok {
		h.Was = &s
	}
	return h
}
