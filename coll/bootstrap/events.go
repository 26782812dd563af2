package bootstrap

import "sync"

// events runs callbacks one after the other on its own goroutine, so that they do not
// delay any link.
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

// stop drops the queued callbacks. A callback that is running continues.
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
