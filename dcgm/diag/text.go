package diag

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteText writes the report for a person: what failed first, with the remedy.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU diagnostics on %s, %s: %s\n", r.Host, levelText(r.Level), r.Status)
	for _, g := range r.GPUs {
		fmt.Fprintf(&b, "GPU %d: %s, %s, %.1f GB, %d multiprocessors\n", g.Index, g.Name, g.Bus, float64(g.Bytes)/1e9, g.SMs)
	}
	for _, t := range r.bad() {
		fmt.Fprintf(&b, "\n%s: %s\n", strings.ToUpper(string(t.Status)), t.Test)
		if t.Reason != "" {
			fmt.Fprintf(&b, "  %s\n", t.Reason)
		}
		for _, f := range t.Findings {
			fmt.Fprintf(&b, "  %s%s\n", on(f.GPU), f.Text)
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
		if x.Status == Skip {
			lines = []string{x.Reason}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f s\t%s\n", x.Test, x.Category, x.Status, x.Seconds, first1(lines))
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

func on(gpu int) string {
	if gpu == NoGPU {
		return ""
	}
	return fmt.Sprintf("GPU %d: ", gpu)
}

func first1(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// bad are the tests that found something, worst first.
func (r *Report) bad() []Result {
	var out []Result
	for _, t := range r.Tests {
		if t.Status != Skip && (t.Status != Pass || len(t.Findings) > 0) {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Result) int {
		return cmp.Compare(slices.Index(severity, b.Status), slices.Index(severity, a.Status))
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
