package hang

import (
	"fmt"
	"iter"
	"sync"

	"github.com/assay-hpc/assay/coll/executor"
)

// An elsewhere is an operation of another communicator that a rank's GPU works on.
type elsewhere struct {
	Name string    `json:"name"`
	What string    `json:"what"`
	Seq  uint32    `json:"seq"` // number of the collective, or of the last one before the Sends and Recvs
	For  []Process `json:"for"` // the processes that it waits for
}

// String names the operation, and the processes that it waits for.
func (e elsewhere) String() string {
	var all []string
	for _, w := range e.For {
		all = append(all, fmt.Sprintf("process %d on %s", w.PID, w.Host))
	}
	return fmt.Sprintf("%s of communicator %q, which waits for %s", e.What, e.Name, few(all, ", "))
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

// elsewhere returns the operations of the process's other communicators on the same device that
// have begun and wait for other ranks. If this one is idle, those are left out that run in CUDA
// graphs alone: to ask for them takes long, and the other ranks wait for the answer.
func (w *Watchdog) elsewhere(idle bool) (all []elsewhere) {
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
			e := elsewhere{Name: o.comm.Name, What: "an operation"}
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
				e.For = append(e.For, o.processes[r])
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, e)
		})
	}
	wg.Wait()
	return all
}
