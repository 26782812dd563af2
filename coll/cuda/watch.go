//go:build cuda && cgo

package cuda

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/op"
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

// reasonTimeout is the reason of a kernel that gave up without being told to stop.
const reasonTimeout = 2

// watchReports fails the communicator when a kernel has waited for too long.
func (e *engine) watchReports() {
	if e.told {
		return
	}
	for ch := range packetChannels + chunkChannels {
		r, ok := e.report(ch)
		if !ok || r.who>>24 != reasonTimeout { // otherwise it was told to stop or to report
			continue
		}
		e.told = true
		peer := int(r.who >> 16 & 0xff)
		e.cfg.Host.Fail(&op.Error{
			Code: op.Timeout, Rank: e.cfg.Rank, Op: "asynchronous", Peer: peer,
			Err: fmt.Errorf("a kernel waited %v for rank %d, which has not got as far (message %d of channel %d, seen %d)", e.cfg.Timeout, peer, r.wanted, r.who&0xffff, r.found),
		})
		return
	}
}
