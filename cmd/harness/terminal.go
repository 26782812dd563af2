package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/plain"
)

// overwrite is the prefix of a text that replaces the current line of a terminal.
const overwrite = "\r\x1b[K"

// A console escapes its output with package plain, since text from a certificate,
// another machine or a file is not trusted. On a terminal, a line of progress may
// overwrite itself.
type console struct {
	*plain.Writer
	terminal bool
}

func newConsole(w io.Writer) console { return console{plain.NewWriter(w), isTerminal(w)} }

func (c console) Write(p []byte) (int, error) {
	rest, ok := bytes.CutPrefix(p, []byte(overwrite))
	if !ok || !c.terminal {
		return c.Writer.Write(p)
	}
	if _, err := io.WriteString(plain.Raw(c), overwrite); err != nil {
		return 0, err
	}
	n, err := c.Writer.Write(rest)
	return len(overwrite) + n, err
}

// painted returns the writer for a renderer that uses colours and escapes texts itself.
func painted(w io.Writer) io.Writer {
	if colored(w) {
		return plain.Raw(w)
	}
	return w
}

func isTerminal(w io.Writer) bool {
	f, ok := plain.Raw(w).(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// colored follows no-color.org: any value of NO_COLOR, except the empty one, disables
// colours.
func colored(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// A statusLine is one line of a terminal that shows what is being done. Where there is no
// terminal, it shows nothing.
type statusLine struct {
	w     io.Writer // nil: no terminal
	from  time.Time // nothing is shown before
	shown bool
}

func newStatusLine(w io.Writer) *statusLine {
	if !isTerminal(w) {
		w = nil
	}
	return &statusLine{w: w}
}

// show replaces the line.
func (l *statusLine) show(format string, a ...any) {
	if l.w == nil || time.Now().Before(l.from) {
		return
	}
	l.shown = true
	fmt.Fprintf(l.w, overwrite+format, a...)
}

// clear removes the line.
func (l *statusLine) clear() {
	if l.shown {
		l.shown = false
		fmt.Fprint(l.w, overwrite)
	}
}

// progress shows the running checks on one line of a terminal, and problems above it.
// Elsewhere, if the suite is a long one, it prints a line for each check that took long
// or found something.
type progress struct {
	w        io.Writer
	terminal bool
	begun    time.Time
	running  []running
	now      func() time.Time
}

type running struct{ id, text string }

func newProgress(w io.Writer, long bool) *progress {
	p := &progress{w: w, terminal: isTerminal(w), begun: time.Now(), now: time.Now}
	if !p.terminal && !long {
		p.w = nil
	}
	return p
}

// notable is the duration from which a finished check gets a line of its own.
const notable = 500 * time.Millisecond

func (p *progress) observe(e suite.Event) {
	if p.w == nil {
		return
	}
	i := slices.IndexFunc(p.running, func(r running) bool { return r.id == e.Check.ID })
	switch {
	case e.Result != nil:
		if i >= 0 {
			p.running = slices.Delete(p.running, i, i+1)
		}
		p.ended(e)
	case i < 0:
		p.running = append(p.running, running{id: e.Check.ID})
	default:
		p.running[i].text = e.Text
	}
	if p.terminal {
		p.show(e)
	}
}

// ended prints a line for a finished check, if it is worth one.
func (p *progress) ended(e suite.Event) {
	r := e.Result
	bad := r.Verdict != result.Pass && r.Verdict != result.Skip
	took := time.Duration(r.Seconds * float64(time.Second))
	if !bad && (p.terminal || took < notable) {
		return
	}
	if p.terminal {
		fmt.Fprint(p.w, overwrite)
	}
	line := fmt.Sprintf("%d/%d %s %s", e.Done, e.Total, r.Verdict, r.ID)
	if bad {
		line += ": " + r.Reason
	}
	fmt.Fprintf(p.w, "%.300s (%v)\n", line, took.Round(100*time.Millisecond))
}

// show writes the progress line.
func (p *progress) show(e suite.Event) {
	text := ""
	if n := len(p.running); n > 0 {
		last := p.running[n-1]
		for _, r := range p.running { // prefer a check that has a text
			if r.text != "" {
				last = r
			}
		}
		text = last.id
		if last.text != "" {
			text += ": " + last.text
		}
	}
	const width = 20
	full := 0
	if e.Total > 0 {
		full = width * e.Done / e.Total
	}
	bar := strings.Repeat("=", full) + strings.Repeat(" ", width-full)
	fmt.Fprintf(p.w, overwrite+"[%s] %d/%d %v %.80s", bar, e.Done, e.Total, p.now().Sub(p.begun).Round(time.Second), plain.Line(text))
}

func (p *progress) clear() {
	if p.w != nil && p.terminal {
		fmt.Fprint(p.w, overwrite)
	}
}
