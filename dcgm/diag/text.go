package diag

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/assay-hpc/assay/harness/result"
)

// WriteText writes the report for a person: what failed first, with the remedy.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU diagnostics on %s, %s: %s\n", r.Host, levelText(r.Level), r.Status)
	for _, g := range r.GPUs {
		fmt.Fprintf(&b, "GPU %d: %s, %s, %.1f GB, %d multiprocessors\n", g.Index, g.Name, g.Bus, float64(g.Bytes)/1e9, g.SMs)
	}
	for _, e := range r.Engines {
		if e.Name != Assay {
			b.WriteString(e.line())
		}
	}
	for _, t := range r.bad() {
		fmt.Fprintf(&b, "\n%s: %s\n", strings.ToUpper(string(t.Status)), t.name())
		if t.Reason != "" {
			fmt.Fprintf(&b, "  %s\n", t.Reason)
		}
		for _, f := range t.Findings {
			fmt.Fprintf(&b, "  %s%s\n", t.on(f.GPU), f.Text)
			if f.Remedy != "" {
				fmt.Fprintf(&b, "    remedy: %s\n", f.Remedy)
			}
		}
		if t.Output != "" {
			fmt.Fprintf(&b, "  it wrote:\n    %s\n", strings.ReplaceAll(strings.TrimSpace(t.Output), "\n", "\n    "))
		}
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "test\tcategory\tstatus\ttime\twhat was measured")
	for _, x := range r.Tests {
		lines := x.lines()
		if x.Status == result.Skip {
			lines = []string{x.Reason}
		}
		took := fmt.Sprintf("%.1f s", x.Seconds)
		if x.Engine != Assay {
			took = "" // they do not tell
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", x.name(), x.Category, x.Status, took, first1(lines))
		for _, l := range lines[min(1, len(lines)):] {
			fmt.Fprintf(t, "\t\t\t\t%s\n", l)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func levelText(n int) string {
	if n == 0 {
		return "tests by name"
	}
	return fmt.Sprintf("level %d", n)
}

// line says what another engine is, and how it ended.
func (e Engine) line() string {
	text := "engine " + e.Name
	if e.Version != "" {
		text += " " + e.Version
	}
	if e.Driver != "" {
		text += ", driver " + e.Driver
	}
	text += ": " + string(e.Status)
	if e.Reason != "" {
		return text + ": " + e.Reason + "\n"
	}
	return fmt.Sprintf("%s, %.0f s\n", text, e.Seconds)
}

// name is the test's, with the engine that is not this one.
func (r *Result) name() string {
	if r.Engine == Assay {
		return r.Test
	}
	return r.Engine + " " + r.Test
}

// on names a finding's GPU.
func (r *Result) on(gpu int) string {
	switch {
	case gpu == NoGPU:
		return ""
	case r.Engine == Assay:
		return fmt.Sprintf("GPU %d: ", gpu)
	}
	return fmt.Sprintf("GPU %d as %s counts: ", gpu, r.Engine)
}

func first1(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// bad are the tests that found something, worst first.
func (r *Report) bad() []Result {
	worst := result.Verdicts()
	var out []Result
	for _, t := range r.Tests {
		if t.Status != result.Skip && (t.Status != result.Pass || len(t.Findings) > 0) {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Result) int {
		return cmp.Compare(slices.Index(worst, a.Status), slices.Index(worst, b.Status))
	})
	return out
}

// lines has a line a figure, with the range over all GPUs or pairs.
func (r *Result) lines() []string {
	var order []string
	values := map[string][]Measurement{}
	for _, m := range r.Measurements {
		if len(values[m.Name]) == 0 {
			order = append(order, m.Name)
		}
		values[m.Name] = append(values[m.Name], m)
	}
	slices.Sort(order) // GPUs run at the same time: whose figure came first is chance
	var out []string
	for _, name := range order {
		all := values[name]
		slices.SortFunc(all, func(a, b Measurement) int { return cmp.Compare(a.Value, b.Value) })
		low, high := all[0], all[len(all)-1]
		text := fmt.Sprintf("%s: %s", name, scaled(low))
		if low.Value != high.Value {
			text = fmt.Sprintf("%s: %s to %s", name, scaled(low), scaled(high))
		}
		if low.Reference > 0 {
			text += fmt.Sprintf(", %.0f %% of %.4g (%s)", 100*low.Value/low.Reference, low.Reference, low.Source)
		}
		out = append(out, text)
	}
	return out
}

func scaled(m Measurement) string {
	if m.Unit == "B" {
		return fmt.Sprintf("%.2f GB", m.Value/1e9)
	}
	if m.Value >= 1000 {
		return fmt.Sprintf("%.0f %s", m.Value, m.Unit)
	}
	return fmt.Sprintf("%.4g %s", m.Value, m.Unit)
}
