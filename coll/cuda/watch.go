//go:build cuda && cgo

package cuda

import (
	"slices"
	"sync"
	"time"
)

// watch polls the reports of all engines of the process.
var watch watchdog

type watchdog struct {
	mu   sync.Mutex
	all  []*engine
	busy bool // its goroutine runs
}

// watchEvery is the interval at which reports are polled.
const watchEvery = 2 * time.Millisecond

func (w *watchdog) add(e *engine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, e)
	if !w.busy {
		w.busy = true
		go w.run()
	}
}

// remove stops the polling of e. After it returns, e is no longer used.
func (w *watchdog) remove(e *engine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(o *engine) bool { return o == e })
}

func (w *watchdog) run() {
	for w.poll() {
		time.Sleep(watchEvery)
	}
}

// check polls the reports of e, unless it was removed.
func (w *watchdog) check(e *engine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.all, e) {
		e.watchReports()
		e.verify.report()
	}
}

// poll polls once and reports whether to continue.
func (w *watchdog) poll() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.all {
		e.watchReports()
		e.verify.report()
	}
	w.busy = len(w.all) > 0
	return w.busy
}
