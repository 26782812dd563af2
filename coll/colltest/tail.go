package colltest

import (
	"bytes"
	"slices"
	"sync"
)

// keepLines bounds what is kept of a process's output.
const keepLines = 400

// A tail keeps the last lines of a stream, and wakes what waits for one.
type tail struct {
	mu      sync.Mutex
	lines   []string
	partial []byte
	changed chan struct{} // closed and made anew by each line
}

func newTail() *tail { return &tail{changed: make(chan struct{})} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = append(t.partial, p...)
	for {
		line, rest, ok := bytes.Cut(t.partial, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		t.lines = append(t.lines, string(line))
		t.lines = t.lines[max(0, len(t.lines)-keepLines):]
		t.partial = bytes.Clone(rest)
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

// last returns the lines, with an unfinished one at the end.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.lines)
	if len(t.partial) > 0 {
		out = append(out, string(t.partial))
	}
	return out
}

// has reports whether there is a line, and else what to wait for.
func (t *tail) has(line string) (bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.lines, line), t.changed
}
