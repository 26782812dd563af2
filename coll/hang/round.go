package hang

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A round visits all watchdogs of the process with one timer: with a timer each, ten
// communicators would wake the process ten times as often.
type round struct {
	mu   sync.Mutex
	all  map[*Watchdog]func()
	runs bool
}

var rounds = round{all: map[*Watchdog]func(){}}

// join makes the round call visit every checkEvery. visit must not block.
func (r *round) join(w *Watchdog, visit func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[w] = visit
	if !r.runs {
		r.runs = true
		go func() {
			for more := true; more; more = r.visit() {
				time.Sleep(checkEvery)
			}
		}()
	}
}

// leave removes a watchdog. Once leave returns, it is not visited any more.
func (r *round) leave(w *Watchdog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, w)
}

// watchdogs returns those that have joined.
func (r *round) watchdogs() []*Watchdog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.all))
}

// visit visits all watchdogs, and reports whether there are any.
func (r *round) visit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, visit := range r.all {
		visit()
	}
	r.runs = len(r.all) > 0
	return r.runs
}
