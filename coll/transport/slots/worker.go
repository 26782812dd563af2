package slots

import (
	"slices"
	"sync"
	"time"
)

// A worker repeats jobs until each is done. The jobs are the goodbyes of connections that
// are no longer used.
type worker struct {
	mu   sync.Mutex
	jobs []func() bool // new ones; each reports whether it is done
	wake chan struct{}

	stop, ended chan struct{}
}

func newWorker() *worker {
	w := &worker{wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w
}

// add gives the worker a job, and does not wait for it.
func (w *worker) add(job func() bool) {
	w.mu.Lock()
	w.jobs = append(w.jobs, job)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// end stops the worker, even if jobs are not done.
func (w *worker) end() {
	close(w.stop)
	<-w.ended
}

// Pauses between rounds in which no job finishes: normally, jobs take microseconds.
const (
	firstPause = 5 * time.Microsecond
	lastPause  = 500 * time.Microsecond
)

func (w *worker) run() {
	defer close(w.ended)
	var todo []func() bool
	for pause := firstPause; ; {
		select {
		case <-w.stop:
			return
		default:
		}
		w.mu.Lock()
		todo = append(todo, w.jobs...)
		w.jobs = nil
		w.mu.Unlock()
		if len(todo) == 0 {
			select {
			case <-w.wake:
			case <-w.stop:
			}
			continue
		}
		before := len(todo)
		todo = slices.DeleteFunc(todo, func(job func() bool) bool { return job() })
		if len(todo) < before {
			pause = firstPause
			continue
		}
		time.Sleep(pause)
		pause = min(2*pause, lastPause)
	}
}
