package hang

import (
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/op"
)

// A Snapshot is a rank's progress in a communicator.
type Snapshot struct {
	Call      collective        `json:"call"`                 // its last collective
	P2P       int               `json:"p2p,omitempty"`        // Sends and Recvs since then; a group counts as one
	Peer      int               `json:"peer"`                 // of the last of these; op.NoPeer: several
	Ago       int               `json:"ago"`                  // seconds since its last call
	OtherCall string            `json:"other_call,omitempty"` // its last call in another communicator, if it came after that
	Does      executor.Progress `json:"does"`
	Graph     bool              `json:"graph,omitempty"`     // it waits in an operation of a CUDA graph
	WaitsFor  []int             `json:"waits_for,omitempty"` // ranks, if it has begun
	Oldest    *position         `json:"oldest,omitempty"`    // the first operation that has not ended; nil: not known
	History   history           `json:"history"`
	Sent      []uint32          `json:"sent,omitempty"`   // Sends that it has called, by peer
	Rcvd      []uint32          `json:"rcvd,omitempty"`   // Recvs
	Halted    map[int]Cause     `json:"halted,omitempty"` // ranks of its host with processes that do not run
	Others    []busyComm        `json:"others,omitempty"` // that wait, if it has called nothing here that has begun
	Calls     map[string]uint32 `json:"calls,omitempty"`  // number of the last collective in other communicators, by name
}

// waits reports whether the rank waits for other ranks, as far as that is known.
func (s Snapshot) waits() bool { return s.Does == executor.Begun || s.Does == executor.Unknown }

// current returns the operation that the rank is in, as far as it is known.
func (s Snapshot) current() position {
	if s.Oldest != nil {
		return *s.Oldest
	}
	return position{Call: s.Call, P2P: s.P2P, Peer: s.Peer}
}

// currentText describes the operation that the rank is in.
func (s Snapshot) currentText() string {
	if s.Graph || s.Oldest == nil {
		return s.lastText()
	}
	return s.Oldest.String() + s.Oldest.ago()
}

// lastText describes the rank's last call.
func (s Snapshot) lastText() string {
	switch {
	case s.Graph:
		return inGraph
	case s.Call.Seq == 0 && s.P2P == 0:
		return ""
	case s.P2P > 0:
		return "Sends or Recvs"
	}
	return s.Call.String()
}

// lastCall describes the rank's last call in a clause.
func (s Snapshot) lastCall() string {
	text := "it has called nothing yet"
	switch {
	case s.P2P > 0:
		text = fmt.Sprintf("its last call was of Sends or Recvs, %d s ago", s.Ago)
	case s.Call.Seq > 0:
		text = fmt.Sprintf("its last call was %s, %d s ago", s.Call, s.Ago)
	}
	if s.OtherCall != "" {
		text += ", and since then " + s.OtherCall
	}
	return text
}

// A position is an operation in the order of a rank's calls.
type position struct {
	Call  collective `json:"call"`            // the collective, or the last one before the Sends and Recvs
	P2P   int        `json:"p2p,omitempty"`   // Sends and Recvs since then; a group counts as one
	Peer  int        `json:"peer"`            // of the last of these; op.NoPeer: several
	Since int        `json:"since,omitempty"` // how many operations the rank has called after it
}

// String describes the operation for people.
func (p position) String() string {
	switch {
	case p.P2P == 0:
		return p.Call.String()
	case p.Peer != op.NoPeer:
		return fmt.Sprintf("a Send to or Recv from rank %d", p.Peer)
	}
	return "Sends or Recvs"
}

// ago says how many operations the rank has called after it.
func (p position) ago() string {
	switch p.Since {
	case 0:
		return ""
	case 1:
		return ", one call ago"
	}
	return fmt.Sprintf(", %d calls ago", p.Since)
}

// A busyComm is an operation of another communicator that a rank's GPU works on.
type busyComm struct {
	Name     string    `json:"name"` // of the communicator
	What     string    `json:"what"`
	Seq      uint32    `json:"seq"` // number of the collective, or of the last one before the Sends and Recvs
	WaitsFor []Process `json:"waits_for"`
}

// String names the operation, and the processes that it waits for.
func (o busyComm) String() string {
	var all []string
	for _, w := range o.WaitsFor {
		all = append(all, fmt.Sprintf("process %d on %s", w.PID, w.Host))
	}
	return fmt.Sprintf("%s of communicator %q, which waits for %s", o.What, o.Name, join(all, ", "))
}

// inGraph describes an operation of a CUDA graph for people. It is not known which one: the host
// only sees its capture.
const inGraph = "an operation of a CUDA graph"

// snapshot returns this rank's Snapshot.
func (w *Watchdog) snapshot() Snapshot {
	state := w.state(true)
	s := Snapshot{
		Peer: op.NoPeer, Does: state.Does, WaitsFor: state.Ranks, Graph: !state.Graph.IsZero(), History: w.history(),
		Sent: counts(w.sent), Rcvd: counts(w.rcvd), Halted: w.processes.Halted(w.comm.Rank),
	}
	last, any := w.log.Last()
	if any {
		p := w.position(last)
		s.Call, s.P2P, s.Peer, s.Ago = p.Call, p.P2P, p.Peer, int(time.Since(last.At).Seconds())
	}
	if e, ok := w.log.At(state.Call); ok {
		p := w.position(e)
		p.Since = int(w.log.Calls() - state.Call)
		s.Oldest = &p
	}
	if state.Does == executor.Behind || state.Does == executor.Idle {
		s.Others = w.busyComms(state.Does == executor.Idle)
	}
	for o := range w.beside() {
		if e, ok := o.log.Last(); ok {
			if s.Calls == nil {
				s.Calls = map[string]uint32{}
			}
			s.Calls[o.comm.Name] = e.Seq
		}
	}
	for _, o := range w.log.Others() { // the latest one
		if !any || o.At.After(last.At) {
			s.OtherCall, last.At, any = fmt.Sprintf("%s of communicator %q, %d s ago", Operation(o.Entry), o.Name, int(time.Since(o.At).Seconds())), o.At, true
		}
	}
	return s
}

// beside returns the watchdogs of the process's other communicators on the same device.
func (w *Watchdog) beside() iter.Seq[*Watchdog] {
	return func(yield func(*Watchdog) bool) {
		for _, o := range rounds.watchdogs() {
			if o.comm.Key != w.comm.Key && o.device == w.device && !yield(o) {
				return
			}
		}
	}
}

// busyComms returns the operations of the process's other communicators on the same device that
// have begun and wait for other ranks. If this one is idle, those are left out that run in CUDA
// graphs alone: to ask for them takes long, and the other ranks wait for the answer.
func (w *Watchdog) busyComms(idle bool) (all []busyComm) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for o := range w.beside() {
		wg.Go(func() {
			if idle && o.state(false).Does == executor.Idle {
				return
			}
			l := o.state(true)
			if l.Does != executor.Begun || len(l.Ranks) == 0 {
				return
			}
			e := busyComm{Name: o.comm.Name, What: "an operation"}
			at, ok := o.log.At(l.Call)
			if !ok {
				at, ok = o.log.Last()
			}
			if !l.Graph.IsZero() {
				e.What = inGraph
			} else if ok {
				e.What, e.Seq = Operation(at), at.Seq
			}
			for _, r := range l.Ranks {
				e.WaitsFor = append(e.WaitsFor, o.processes[r])
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, e)
		})
	}
	wg.Wait()
	return all
}
