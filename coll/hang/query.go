package hang

import (
	"time"

	"github.com/assay-hpc/assay/coll/executor"
)

// How long the driver may take to answer.
const (
	slowAfter  = time.Second     // after this, its state is executor.Slow: not known
	stuckAfter = 5 * time.Second // after this, its state is executor.Stuck: it does not answer
)

// A query asks the executor for its state. The answer may take as long as the driver does.
type query struct {
	progress bool // asks for the progress of the oldest operation, not only whether there is one
	at       time.Time
	done     chan struct{} // closed: there is an answer
	state    executor.State
}

// state asks the executor whether an operation is in progress and, if progress is set, how far the
// oldest one is, operations of CUDA graphs included.
func (w *Watchdog) state(progress bool) executor.State {
	limit := time.After(slowAfter)
	for {
		q := w.pending(progress)
		select {
		case <-q.done:
			if q.progress || !progress {
				return q.state
			} // else the pending query asked for less
		case <-limit:
			if time.Since(q.at) < stuckAfter {
				return executor.State{Does: executor.Slow}
			}
			return executor.State{Does: executor.Stuck}
		}
	}
}

// pending returns the unanswered query, or a new one: a driver that does not answer is not asked
// again.
func (w *Watchdog) pending(progress bool) *query {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.query != nil {
		return w.query
	}
	q := &query{progress: progress, at: time.Now(), done: make(chan struct{})}
	if w.closed { // there is no executor to ask
		q.state.Does = executor.Idle
		close(q.done)
		return q
	}
	w.query = q
	w.tasks.Go(func() {
		idle := w.executor.Idle()
		if progress {
			q.state = w.executor.Progress()
		}
		if idle && q.state.Graph.IsZero() {
			q.state = executor.State{Does: executor.Idle, Graphs: q.state.Graphs}
		}
		w.mu.Lock()
		w.query = nil
		w.mu.Unlock()
		close(q.done)
	})
	return q
}
