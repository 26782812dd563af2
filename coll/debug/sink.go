package debug

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
)

// A sink is the destination of log lines. Each piece is written by one call, so that the lines of
// several ranks do not mix.
type sink struct {
	mu   sync.Mutex
	w    io.Writer // nil once closed
	path string    // "" if it is not a file that openFile opened
	refs int       // loggers that have opened it; guarded by files.mu
}

// files are the log files of this process. A file is truncated once: the log of a second
// communicator is appended to that of the first, even if the first no longer exists.
var files = struct {
	mu      sync.Mutex
	open    map[string]*sink
	created map[string]bool
}{open: map[string]*sink{}, created: map[string]bool{}}

func openSink(o Options) (*sink, error) {
	path := ""
	if o.Level > Version {
		path = expand(o.File, o.Host, o.PID)
	}
	switch path {
	case "", "/dev/stderr":
		if o.Stderr == nil {
			o.Stderr = os.Stderr
		}
		return &sink{w: o.Stderr}, nil
	case "/dev/stdout":
		return &sink{w: os.Stdout}, nil // not opened again: that would truncate what it is redirected to
	}
	return openFile(path)
}

func openFile(path string) (*sink, error) {
	files.mu.Lock()
	defer files.mu.Unlock()
	if s := files.open[path]; s != nil {
		s.refs++
		return s, nil
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if !files.created[path] {
		mode |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, mode, 0o644)
	if err != nil {
		return nil, fmt.Errorf("NCCL_DEBUG_FILE: %w; name a file in a directory that can be written", err)
	}
	s := &sink{w: f, path: path, refs: 1}
	files.open[path], files.created[path] = s, true
	return s, nil
}

// write ignores errors: a log must not fail a collective.
func (s *sink) write(p []byte) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w != nil {
		s.w.Write(p)
	}
}

// close is the counterpart of openSink. The last call closes the file.
func (s *sink) close() error {
	if s.path == "" {
		return nil
	}
	files.mu.Lock()
	defer files.mu.Unlock()
	if s.refs--; s.refs != 0 {
		return nil
	}
	delete(files.open, s.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.w.(io.Closer)
	s.w = nil
	return f.Close()
}

// expand fills in a file name as NCCL does: %h, %p and %%; any other % is kept.
func expand(name, host string, pid int) string {
	return strings.NewReplacer("%h", host, "%p", strconv.Itoa(pid), "%%", "%").Replace(name)
}
