package bootstrap

import "sync"

// events runs callbacks one after the other on a goroutine of its own, so that
// what they do holds up no link. The zero value drops what is added until
// start.
type events struct {
	mu      sync.Mutex
	queue   []func()
	wake    chan struct{}
	stopped bool
}

func (e *events) start(wg *sync.WaitGroup) {
	e.mu.Lock()
	e.wake = make(chan struct{}, 1)
	e.mu.Unlock()
	wg.Go(e.run)
}

func (e *events) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.wake == nil || e.stopped {
		return
	}
	e.queue = append(e.queue, f)
	e.pokeLocked()
}

// stop ends run once the callback that runs, if one does, has returned. What
// is queued is dropped.
func (e *events) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	e.queue = nil
	e.pokeLocked()
}

func (e *events) pokeLocked() {
	select {
	case e.wake <- struct{}{}:
	default: // also when wake is nil
	}
}

func (e *events) run() {
	for range e.wake {
		for {
			e.mu.Lock()
			if e.stopped {
				e.mu.Unlock()
				return
			}
			if len(e.queue) == 0 {
				e.mu.Unlock()
				break
			}
			f := e.queue[0]
			e.queue = e.queue[1:]
			e.mu.Unlock()
			f()
		}
	}
}
