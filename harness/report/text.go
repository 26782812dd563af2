// Package report renders a certificate. Each renderer reads the same data and
// adds no judgement of its own.
package report

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/assay-hpc/assay/harness/certificate"
)

// TextOptions say how Text writes.
type TextOptions struct {
	Color bool
	// Verbose adds the output of checks that passed too.
	Verbose bool
	// Hide leaves out results, which the summary still counts.
	Hide func(certificate.Result) bool
}

// Text writes a certificate for people: a line for each check, then what
// failed with all that is known, then one line that sums up.
func Text(w io.Writer, s *certificate.Statement, opt TextOptions) error {
	t := text{opt: opt, w: w}
	p := &s.Predicate
	t.head(s)
	width := 0
	hidden := 0
	for _, r := range p.Results {
		if opt.Hide == nil || !opt.Hide(r) {
			width = max(width, utf8.RuneCountInString(r.ID))
		}
	}
	for _, r := range p.Results {
		if opt.Hide != nil && opt.Hide(r) {
			hidden++
			continue
		}
		t.line(r, width)
	}
	if hidden > 0 {
		t.printf("%s\n", t.dim(fmt.Sprintf("  … %d checks not selected", hidden)))
	}
	t.faults(p.Results)
	t.printf("\n%s\n", t.summary(p))
	return t.err
}

type text struct {
	opt TextOptions
	w   io.Writer
	err error
}

func (t *text) printf(format string, a ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, a...)
	}
}

// marks has, for each verdict, its sign and its colour.
var marks = map[certificate.Verdict]struct{ sign, color string }{
	certificate.Pass: {"✓", "32"}, certificate.Fail: {"✗", "31"}, certificate.Skip: {"–", "33"}, certificate.Error: {"!", "31"},
}

func (t *text) paint(code, s string) string {
	if !t.opt.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *text) dim(s string) string { return t.paint("2", s) }

func (t *text) mark(v certificate.Verdict) string { return t.paint(marks[v].color, marks[v].sign) }

// head says what was looked at.
func (t *text) head(s *certificate.Statement) {
	e := s.Predicate.Environment
	for _, sub := range s.Subject {
		t.printf("image    %s@sha256:%s\n", printable(sub.Name), sub.Digest["sha256"])
	}
	if e.Target != "" {
		t.printf("target   %s, recipe %.7s\n", printable(e.Target), e.Recipe)
	}
	t.printf("system   %s\n", printable(join(e.OS, e.Platform, e.Kernel)))
	t.printf("harness  %s\n\n", join(s.Predicate.Harness.Version, fmt.Sprintf("%.12s", s.Predicate.Harness.Commit)))
}

func join(parts ...string) string {
	var have []string
	for _, p := range parts {
		if p != "" {
			have = append(have, p)
		}
	}
	return strings.Join(have, ", ")
}

func (t *text) line(r certificate.Result, width int) {
	text := r.Title
	if r.Verdict == certificate.Skip {
		text = r.Reason
	} else if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.Measured != nil {
		text += " " + measured(r.Measured)
	}
	const longest = 160
	text = shorten(printable(text), longest)
	pad := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(r.ID)))
	t.printf("%s %s%s  %s%s\n", t.mark(r.Verdict), printable(r.ID), pad, text, t.took(r.Seconds))
	if t.opt.Verbose && r.Verdict == certificate.Pass {
		t.output(r.Output)
	}
}

func measured(m *certificate.Measurement) string {
	s := fmt.Sprintf("%.4g %s", m.Value, m.Unit)
	if m.Expected != 0 {
		s += fmt.Sprintf(" of %.4g (%.0f %%, %s)", m.Expected, 100*m.Ratio, m.Source)
	}
	return s
}

// took adds how long it was, and leaves out what nobody waits for.
func (t *text) took(seconds float64) string {
	if seconds < 0.1 {
		return ""
	}
	return t.dim(fmt.Sprintf(" %.1f s", seconds))
}

// shorten cuts a text at a number of characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// faults writes everything about what failed, below the table: on a terminal
// the end is what people see.
func (t *text) faults(results []certificate.Result) {
	for _, r := range results {
		if r.Verdict != certificate.Fail && r.Verdict != certificate.Error {
			continue
		}
		t.printf("\n%s %s: %s\n", t.mark(r.Verdict), t.paint("1", printable(r.ID)), printable(r.Reason))
		if r.Remedy != "" {
			t.printf("    remedy: %s\n", printable(r.Remedy))
		}
		t.output(r.Output)
	}
}

func (t *text) output(s string) {
	for line := range strings.Lines(s) {
		t.printf("    %s\n", printable(strings.TrimRight(line, "\r\n")))
	}
}

// printable takes from a text what could steer the terminal: it comes from
// programs of an image that nobody vouches for yet.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return '·'
		}
		return r
	}, s)
}

// words say a certificate's verdict, outcomes a check's.
var (
	words = map[certificate.Verdict]string{
		certificate.Pass: "PASS", certificate.Fail: "FAIL", certificate.Error: "ERROR", certificate.Skip: "NOTHING SHOWN",
	}
	outcomes = map[certificate.Verdict]string{
		certificate.Pass: "passed", certificate.Fail: "failed", certificate.Error: "not carried out", certificate.Skip: "skipped",
	}
)

func (t *text) summary(p *certificate.Predicate) string {
	return fmt.Sprintf("%s  suite %s: %s", t.paint("1;"+marks[p.Verdict].color, words[p.Verdict]), p.Suite, counts(p))
}

// counts says how many checks have each verdict, and how long all took.
func counts(p *certificate.Predicate) string {
	count := certificate.Count(p.Results)
	return fmt.Sprintf("%d passed, %d failed, %d skipped, %d could not be carried out, in %v",
		count[certificate.Pass], count[certificate.Fail], count[certificate.Skip], count[certificate.Error],
		p.Finished.Sub(p.Started).Round(10*time.Millisecond))
}
