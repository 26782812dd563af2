// Package report renders a certificate. All renderers read the same data and add no judgement of
// their own.
package report

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// TextOptions are the options of Text and Results.
type TextOptions struct {
	Color bool
	// Verbose also writes the output of checks that passed.
	Verbose bool
	// Objects also writes the metrics of each object that is well.
	Objects bool
	// Width is the width of the terminal in characters; 0: unknown.
	Width int
	// Hide selects results to omit. The summary still counts them.
	Hide func(result.Result) bool
	// Head is the lines that Results writes first.
	Head []string
	// Quiet writes only problems and the summary.
	Quiet bool
}

// Lines are as long as the terminal is wide, within readable limits.
const (
	narrowest = 60
	widest    = 160
	// unfolded is the width at which longer texts wrap, unless the terminal is narrower.
	unfolded = 100
)

// Text writes a certificate as readable text: the subject, failures and warnings with all details,
// a line for each check, and a summary line.
func Text(w io.Writer, s *certificate.Statement, opt TextOptions) error {
	t := textWriter{opt: opt, w: w, width: widest}
	if opt.Width > 0 {
		t.width = min(max(opt.Width, narrowest), widest)
	}
	c := cleanStatement(s)
	p := &c.Predicate
	t.head(c)
	t.results(s.Predicate.Results, p.Results)
	t.summary(p.Verdict, fmt.Sprintf("suite %s: %s", p.Suite, counts(result.Count(p.Results), p.Finished.Sub(p.Started))))
	return t.err
}

// Results writes the results of one kind of checks, in the same format as Text.
func Results(w io.Writer, r *result.Report, opt TextOptions) error {
	t := textWriter{opt: opt, w: w, width: widest}
	if opt.Width > 0 {
		t.width = min(max(opt.Width, narrowest), widest)
	}
	c := cleaned(reflect.ValueOf(r)).Interface().(*result.Report)
	for i, line := range opt.Head {
		t.printf("%s\n", words.Line(line))
		if i == len(opt.Head)-1 {
			t.printf("\n")
		}
	}
	t.results(r.Results, c.Results)
	t.summary(r.Verdict, fmt.Sprintf("%s: %s", r.Kind, counts(result.Count(r.Results), time.Duration(r.Seconds*float64(time.Second)))))
	return t.err
}

// results writes the results; clean is the plain-text copy of all.
func (t *textWriter) results(all, clean []result.Result) {
	t.faults(clean)
	if t.opt.Quiet {
		return
	}
	t.figures(clean)
	var shown []result.Result
	for i, r := range all {
		if t.opt.Hide == nil || !t.opt.Hide(r) {
			shown = append(shown, clean[i])
		}
	}
	t.lines(shown)
	if hidden := len(all) - len(shown); hidden > 0 {
		t.printf("%s\n", t.dim(fmt.Sprintf("  … %d %s not selected", hidden, words.Form(hidden, "check"))))
	}
	t.printf("\n")
}

type textWriter struct {
	opt   TextOptions
	w     io.Writer
	width int
	err   error
}

func (t *textWriter) printf(format string, a ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, a...)
	}
}

func (t *textWriter) paint(code, s string) string {
	if !t.opt.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *textWriter) dim(s string) string { return t.paint("2", s) }

func (t *textWriter) mark(v result.Verdict) string { return t.paint(marks[v].color, marks[v].sign) }

// wrapped prints a text with hanging indentation. start, which may be coloured, replaces the
// indentation of the first line.
func (t *textWriter) wrapped(start string, indent int, s string) {
	for i, line := range wrap(s, min(t.width, unfolded)-indent) {
		if i > 0 {
			start = strings.Repeat(" ", indent)
		}
		t.printf("%s%s\n", start, line)
	}
}

// wrap breaks a text at its spaces. A word that is too long stays whole, so that it can be copied.
func wrap(s string, width int) (lines []string) {
	line, length := "", 0
	for word := range strings.FieldsSeq(s) {
		n := utf8.RuneCountInString(word)
		switch {
		case length == 0:
			line, length = word, n
		case length+1+n > width:
			lines = append(lines, line)
			line, length = word, n
		default:
			line += " " + word
			length += 1 + n
		}
	}
	return append(lines, line)
}

// head writes the subject of the certificate.
func (t *textWriter) head(s *certificate.Statement) {
	const indent = 9
	line := func(name, value string) {
		if value != "" {
			t.wrapped(fmt.Sprintf("%-*s", indent, name), indent, value)
		}
	}
	p := &s.Predicate
	e := p.Environment
	for _, sub := range s.Subject {
		if !isNode(sub) {
			line("image", subject(sub))
		}
	}
	if n := p.Node; n != nil {
		line("node", join(n.Name, machineName(n), prefixed("cloud ", cloud(n)), prefixed("inside ", n.Container)))
		line("is", platform(n))
		line("GPUs", join(gpus(n), prefixed("driver ", n.Driver), prefixed("CUDA ", n.CUDA)))
		line("ports", ports(n))
	}
	if e.Target != "" {
		line("target", fmt.Sprintf("%s, recipe %.7s", e.Target, e.Recipe))
	}
	line("system", join(e.OS, e.Platform, e.Kernel))
	line("harness", join(p.Harness.Version, fmt.Sprintf("%.12s", p.Harness.Commit)))
	line("limits", limitsFile(p.Limits))
	line("selected", p.Selected.String())
	line("repeated", p.After.String())
	t.printf("\n")
}

// faults writes all details of the problems.
func (t *textWriter) faults(results []result.Result) {
	for _, r := range faulty(results) {
		name := r.name()
		t.printf("%s %s:", t.mark(r.Verdict), t.paint("1", name))
		first := min(t.width, unfolded) - utf8.RuneCountInString(name) - 4
		if utf8.RuneCountInString(r.Reason) <= first {
			t.printf(" %s\n", r.Reason)
		} else {
			t.printf("\n")
			t.wrapped("    ", 4, r.Reason)
		}
		if r.Wanted != "" {
			t.wrapped("    wanted: ", 12, r.Wanted)
		}
		if r.Remedy != "" {
			t.wrapped("    remedy: ", 12, r.Remedy)
		}
		t.objects(r.Objects)
		if r.Verdict != result.Warn || t.opt.Verbose {
			t.output(r.Output)
		}
		t.printf("\n")
	}
}

// figures writes the headlines, as bars relative to what the hardware should reach.
func (t *textWriter) figures(results []result.Result) {
	all := headlinesOf(results)
	width, value := 0, 0
	for _, h := range all {
		width, value = max(width, utf8.RuneCountInString(h.Label)), max(value, utf8.RuneCountInString(h.Value))
	}
	for _, h := range all {
		line := fmt.Sprintf("%-*s  %*s", width, h.Label, value, h.Value)
		switch {
		case h.HasBar:
			line += fmt.Sprintf("  %s %4.0f %% of %.4g", bar(h.of.Ratio, 20), 100*h.of.Ratio, h.of.Expected)
		case h.Limit != "":
			line += "  limit: " + h.Limit
		}
		t.printf("%s %s\n", t.mark(h.Verdict), shorten(line, t.width-2))
	}
	if len(all) > 0 {
		t.printf("\n")
	}
}

// mostBunches is the largest number of object lines of a check.
const mostBunches = 12

func (t *textWriter) objects(objects []result.Object) {
	var well []result.Object
	written, left := 0, 0
	for _, b := range bunches(objects) {
		switch {
		case !worthy(b.Verdict):
			well = append(well, b.Objects...)
		case written == mostBunches:
			left += len(b.Objects)
		default:
			t.wrapped("    "+t.mark(b.Verdict)+" ", 6, b.names()+": "+b.outcome())
			written++
		}
	}
	if left > 0 {
		t.printf("    … %d more (harness report --format html has them all)\n", left)
	}
	if len(well) > 0 && written > 0 {
		t.printf("    %s\n", t.dim("the other "+tally(well)))
	}
}

// many is the number of checks from which checks that were skipped for the same reason share one
// line: on a machine without GPUs these are nearly all.
const many = 8

func (t *textWriter) lines(results []result.Result) {
	width := 0
	skipped := map[string][]string{}
	for _, r := range results {
		width = max(width, utf8.RuneCountInString(r.ID))
		if r.Verdict == result.Skip && !t.opt.Verbose {
			skipped[r.Reason] = append(skipped[r.Reason], r.ID)
		}
	}
	for _, r := range results {
		ids := skipped[r.Reason]
		switch {
		case r.Verdict != result.Skip || len(ids) < many:
			t.line(r, width)
		case r.ID == ids[0]:
			t.line(result.Result{
				ID: fmt.Sprintf("%d checks", len(ids)), Verdict: r.Verdict,
				Reason: fmt.Sprintf("%s: %s … %s (--verbose shows all)", r.Reason, ids[0], ids[len(ids)-1]),
			}, width)
		}
	}
}

func (t *textWriter) line(r result.Result, width int) {
	text := r.Title
	if r.Verdict == result.Skip {
		text = r.Reason
	} else if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.Measured != nil {
		text += "; " + measured(r.Measured)
	} else if values, _ := valuesOf(r.Objects); values != "" {
		text += "; " + values
	}
	took := t.took(r.Seconds)
	room := t.width - width - 4
	if took != "" {
		room -= len(" 1000.0 s")
	}
	pad := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(r.ID)))
	t.printf("%s %s%s  %s%s\n", t.mark(r.Verdict), r.ID, pad, shorten(text, max(room, 20)), took)
	if t.opt.Verbose && r.Verdict == result.Pass {
		t.output(r.Output)
	}
}

// took formats a duration, and omits short ones.
func (t *textWriter) took(seconds float64) string {
	if seconds < 0.1 {
		return ""
	}
	return t.dim(fmt.Sprintf(" %.1f s", seconds))
}

// shorten truncates a text to a number of characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

func (t *textWriter) output(s string) {
	for line := range strings.Lines(s) {
		t.printf("    %s", line)
	}
}

// summary writes one line, which programs look for, unless the terminal is known to be narrower.
func (t *textWriter) summary(v result.Verdict, of string) {
	word := verdictNames[v]
	for i, line := range wrap(of, t.width-len(word)-2) {
		if i == 0 {
			t.printf("%s  %s\n", t.paint("1;"+marks[v].color, word), line)
		} else {
			t.printf("%*s%s\n", len(word)+2, "", line)
		}
	}
}
