package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/words"
)

// overwrite is the prefix of a text that replaces the current line of a terminal.
const overwrite = "\r\x1b[K"

// A console escapes its output with package plain, since text from a certificate,
// another machine or a file is not trusted. On a terminal, a line of progress may
// overwrite itself.
type console struct {
	*words.Writer
	terminal bool
}

func newConsole(w io.Writer) console { return console{words.NewWriter(w), isTerminal(w)} }

func (c console) Write(p []byte) (int, error) {
	rest, ok := bytes.CutPrefix(p, []byte(overwrite))
	if !ok || !c.terminal {
		return c.Writer.Write(p)
	}
	if _, err := io.WriteString(words.Raw(c), overwrite); err != nil {
		return 0, err
	}
	n, err := c.Writer.Write(rest)
	return len(overwrite) + n, err
}

// painted returns the writer for a renderer that uses colours and escapes texts itself.
func painted(w io.Writer) io.Writer {
	if colored(w) {
		return words.Raw(w)
	}
	return w
}

func isTerminal(w io.Writer) bool {
	f, ok := words.Raw(w).(*os.File)
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

// newProgress shows the running checks on one line of a terminal, and problems above it.
// Elsewhere, if the suite is a long one, it prints a line for each check that took long
// or found something.
func newProgress(w io.Writer, long bool) (p *suite.Progress, clear func()) {
	bar := newStatusLine(w)
	p = suite.NewProgress()
	if bar.w != nil {
		p.Show = func(text string) { bar.show("%s", words.Line(text)) }
	}
	if bar.w != nil || long {
		p.Print = func(line string) { bar.clear(); fmt.Fprintln(w, line) }
	}
	return p, bar.clear
}
