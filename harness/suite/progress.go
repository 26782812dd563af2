package suite

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// A Progress says how far a run is. Where there is a terminal, one line shows it, and a line is
// printed for each problem. Elsewhere a line is printed for each check that took long or found
// something.
type Progress struct {
	Show  func(text string) // replaces the line of a terminal; nil: there is none
	Print func(line string) // nil: nothing is printed

	begun   time.Time
	running []running
}

type running struct{ id, text string }

// NewProgress returns the progress of a run that begins now.
func NewProgress() *Progress { return &Progress{begun: time.Now()} }

// notable is the duration from which a finished check gets a line of its own.
const notable = 500 * time.Millisecond

// Observe is for Options.Observe.
func (p *Progress) Observe(e Event) {
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
	if p.Show != nil {
		p.show(e)
	}
}

// ended prints a line for a finished check, if it is worth one.
func (p *Progress) ended(e Event) {
	r := e.Result
	bad := r.Verdict != result.Pass && r.Verdict != result.Skip
	took := time.Duration(r.Seconds * float64(time.Second))
	if p.Print == nil || !bad && (p.Show != nil || took < notable) {
		return
	}
	line := fmt.Sprintf("%d/%d %s %s", e.Done, e.Total, r.Verdict, r.ID)
	if bad {
		line += ": " + r.Reason
	}
	p.Print(fmt.Sprintf("%.300s (%v)", line, took.Round(100*time.Millisecond)))
}

// show writes the progress line.
func (p *Progress) show(e Event) {
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
	p.Show(fmt.Sprintf("[%s] %d/%d %v %.80s", bar, e.Done, e.Total, time.Since(p.begun).Round(time.Second), text))
}
