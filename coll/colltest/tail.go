package colltest

import (
	"bytes"
	"slices"
	"sync"
)

// keepLines bounds how many lines of a process's output are stored.
const keepLines = 400

// A tail stores the last lines of a stream, and wakes goroutines that wait for one.
type tail struct {
	mu      sync.Mutex
	lines   []string
	partial []byte
	changed chan struct{} // closed and replaced at each line
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

// last returns the lines, including an unfinished one at the end.
func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.lines)
	if len(t.partial) > 0 {
		out = append(out, string(t.partial))
	}
	return out
}

// has reports whether there is such a line, and returns a channel that is closed at the next one.
func (t *tail) has(line string) (bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.lines, line), t.changed
}
