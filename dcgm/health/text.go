package health

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/plain"
)

// TextOptions say how WriteText writes.
type TextOptions struct {
	Color bool
	Quiet bool // only what is wrong, and the summary
}

// WriteText writes the report for people: what is wrong comes first, with its
// remedy; then a line for each check, and one that sums up.
func (r *Report) WriteText(w io.Writer, opt TextOptions) error {
	t := &writer{opt: opt}
	faults := t.faults(r)
	if !opt.Quiet {
		if faults {
			t.printf("\n")
		}
		t.table(r)
	}
	if faults || !opt.Quiet {
		t.printf("\n")
	}
	t.summary(r)
	_, err := io.WriteString(w, t.b.String())
	return err
}

type writer struct {
	opt TextOptions
	b   strings.Builder
}

func (t *writer) printf(format string, a ...any) { fmt.Fprintf(&t.b, format, a...) }

// marks has each verdict's sign and colour, as harness certify has them.
var marks = map[result.Verdict]struct{ sign, color string }{
	result.Pass: {"✓", "32"}, result.Warn: {"⚠", "33"}, result.Fail: {"✗", "31"}, result.Skip: {"–", "2"}, result.Error: {"!", "31"},
}

func (t *writer) paint(code, s string) string {
	if !t.opt.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (t *writer) mark(v result.Verdict) string { return t.paint(marks[v].color, marks[v].sign) }

// A fault is one thing that is wrong, with all that say so.
type fault struct {
	Result
	ids, objects []string
}

// gather makes one fault of results that have one reason: a GPU that does not
// answer is no news the fortieth time, nor is one limit on eight GPUs.
func gather(results []Result) []*fault {
	var out []*fault
	for _, r := range results {
		i := slices.IndexFunc(out, func(f *fault) bool { return f.Verdict == r.Verdict && f.Reason == r.Reason && f.Remedy == r.Remedy })
		if i < 0 {
			i, out = len(out), append(out, &fault{Result: r})
		}
		f := out[i]
		if !slices.Contains(f.ids, r.ID) {
			f.ids = append(f.ids, r.ID)
		}
		if !slices.Contains(f.objects, r.Object.Name) {
			f.objects = append(f.objects, r.Object.Name)
		}
	}
	return out
}

func (t *writer) faults(r *Report) bool {
	all := gather(r.faults())
	for _, f := range all {
		id := f.ids[0]
		if n := len(f.ids); n > 1 {
			id = fmt.Sprintf("%s and %d more", id, n-1)
		}
		t.printf("%s %s  %s: %s\n", t.mark(f.Verdict), t.paint("1", id), plain.Line(f.where()), plain.Line(f.Reason))
		if f.Verdict == result.Error {
			continue
		}
		t.printf("    wanted: %s (%s)\n", plain.Line(f.Threshold), plain.Line(f.Source))
		t.printf("    remedy: %s\n", plain.Line(f.Remedy))
	}
	return len(all) > 0
}

// where names the objects of a fault. A single GPU gets its address.
func (f *fault) where() string {
	if len(f.objects) == 1 && f.Object.Kind == "gpu" && f.Object.Bus != "" && f.Object.Bus != f.Object.Name {
		if f.Object.UUID != "" {
			return fmt.Sprintf("%s (%s, %s)", f.Object.Name, f.Object.Bus, f.Object.UUID)
		}
		return fmt.Sprintf("%s (%s)", f.Object.Name, f.Object.Bus)
	}
	return list(f.objects)
}

// table has a line for each check, and one for all of which nothing is known
// for one reason.
func (t *writer) table(r *Report) {
	groups := r.byCheck()
	width := 0
	var order []string
	unknown := map[string][]Result{}
	for _, g := range groups {
		reason, ok := unlooked(g)
		if !ok {
			width = max(width, len(g[0].ID))
			continue
		}
		if unknown[reason] == nil {
			order = append(order, reason)
		}
		unknown[reason] = append(unknown[reason], g[0])
	}
	for _, g := range groups {
		if _, ok := unlooked(g); !ok {
			t.printf("%s %-*s  %s\n", t.mark(verdicts(g)[0]), width, g[0].ID, shorten(plain.Line(line(g)), 120))
		}
	}
	for _, reason := range order {
		of := unknown[reason]
		ids := make([]string, len(of))
		for i, r := range of {
			ids[i] = r.ID
		}
		t.printf("%s %s: %s\n", t.mark(of[0].Verdict), plain.Line(reason), list(ids))
	}
}

// unlooked is why nothing is known of a check, whose results all say so.
func unlooked(results []Result) (reason string, ok bool) {
	for _, r := range results {
		if r.Verdict != results[0].Verdict || r.Reason != results[0].Reason {
			return "", false
		}
	}
	switch results[0].Verdict {
	case result.Skip:
		return "skipped: " + results[0].Reason, true
	case result.Error:
		return "could not be made: " + results[0].Reason, true
	}
	return "", false
}

// line is what a check found, in one line.
func line(results []Result) string {
	var parts []string
	kinds := verdicts(results)
	for _, v := range kinds {
		var of []Result
		for _, r := range results {
			if r.Verdict == v {
				of = append(of, r)
			}
		}
		text := found(of)
		if v == result.Skip || v == result.Error {
			text = of[0].Reason
			if v == result.Skip {
				text = "skipped: " + text
			}
		}
		if len(results) > 1 || of[0].Object.Kind != "node" && of[0].Object.Name != "GPUs" {
			text = fmt.Sprintf("%s: %s", several(of), text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// several counts objects, or names a single one.
func several(results []Result) string {
	if len(results) == 1 {
		return results[0].Object.Name
	}
	kind := map[string]string{"gpu": "GPUs", "port": "ports", "device": "models", "pci": "devices", "nvswitch": "NVSwitches"}[results[0].Object.Kind]
	return fmt.Sprintf("%d %s", len(results), kind)
}

// found is the values of results, the different ones.
func found(results []Result) string {
	low, high := results[0], results[0]
	var values []string
	numbers := true
	for _, r := range results {
		if !slices.Contains(values, r.Value) {
			values = append(values, r.Value)
		}
		if r.Number == nil {
			numbers = false
			continue
		}
		if numbers && *r.Number < *low.Number {
			low = r
		}
		if numbers && *r.Number > *high.Number {
			high = r
		}
	}
	if numbers && len(values) > 2 {
		return low.Value + " to " + high.Value
	}
	return list(values)
}

func (t *writer) summary(r *Report) {
	words := map[result.Verdict]string{result.Pass: "PASS", result.Warn: "PASS, with warnings", result.Fail: "FAIL", result.Error: "ERROR", result.Skip: "NOTHING SHOWN"}
	ids := map[string]bool{}
	for _, one := range r.Results {
		ids[one.ID] = true
	}
	checks, objects := fmt.Sprintf("%d checks", len(ids)), "no GPU"
	if len(ids) == 1 {
		checks = "1 check"
	}
	switch n := len(r.GPUs); {
	case n == 1:
		objects = "1 GPU"
	case n > 1:
		objects = fmt.Sprintf("%d GPUs", n)
	}
	t.printf("%s  %s on this node and %s: %d passed, %d warned, %d failed, %d skipped, %d could not be made, in %.2f s\n",
		t.paint("1;"+marks[r.Verdict].color, words[r.Verdict]), checks, objects,
		r.Count["pass"], r.Count["warn"], r.Count["fail"], r.Count["skip"], r.Count["error"], r.Seconds)
}

// shorten cuts a text at a number of characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
