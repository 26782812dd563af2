package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/harness/suite"
)

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// colored follows no-color.org: any value of NO_COLOR but the empty one.
func colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// progress shows one line on a terminal, and nothing elsewhere.
type progress struct {
	w       io.Writer
	running []string
}

func newProgress(w io.Writer) *progress {
	if !isTerminal(w) {
		return &progress{}
	}
	return &progress{w: w}
}

func (p *progress) observe(e suite.Event) {
	if p.w == nil {
		return
	}
	if e.Result == nil {
		p.running = append(p.running, e.Check.ID)
	}
	for i, id := range p.running {
		if e.Result != nil && id == e.Check.ID {
			p.running = append(p.running[:i], p.running[i+1:]...)
			break
		}
	}
	now := ""
	if len(p.running) > 0 {
		now = p.running[0]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%d/%d %.60s", e.Done, e.Total, now)
}

func (p *progress) clear() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
