package bootstrap

import "sync"

// events runs callbacks one after the other on a goroutine of its own, so that
// what they do holds up no link.
type events struct {
	wg      *sync.WaitGroup // counts the goroutine, while there is one
	mu      sync.Mutex
	queue   []func()
	running bool
	stopped bool
}

func (e *events) add(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return
	}
	e.queue = append(e.queue, f)
	if !e.running {
		e.running = true
		e.wg.Go(e.run)
	}
}

// stop drops what is queued. The callback that runs, if one does, goes on.
func (e *events) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	e.queue = nil
}

func (e *events) run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 {
		f := e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		f()
		e.mu.Lock()
	}
	e.running = false
}
