package membw

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/assay-hpc/assay/harness/result"
)

// Marks of verdicts, behind a value.
var marks = map[result.Verdict]string{result.Warn: "?", result.Fail: "!"}

// WriteText writes the report for a person.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Copy bandwidth of %s on %s\n", r.count(), r.Host)
	fmt.Fprintf(&b, "%s a copy, the median of %d samples of %d copies each; GB = 1e9 bytes, a copy's bytes count once\n", size(r.Bytes), r.Samples, r.Copies)
	if r.Driver != "" {
		fmt.Fprintln(&b, r.Driver)
	}
	b.WriteByte('\n')
	r.writeGPUs(&b)
	r.writeVectors(&b)
	for i := range r.Families {
		if f := &r.Families[i]; f.matrix() {
			r.writeMatrix(&b, f)
		}
	}
	r.writeVersus(&b)
	r.writeEnd(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// count is "4 x NVIDIA H200".
func (r *Report) count() string {
	n := map[string]int{}
	for _, g := range r.GPUs {
		n[g.Name]++
	}
	var out []string
	for _, name := range sortedKeys(n) {
		out = append(out, fmt.Sprintf("%d x %s", n[name], name))
	}
	return strings.Join(out, ", ")
}

// size is a size in the largest unit that divides it.
func size(bytes int) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if bytes >= 1<<u.shift && bytes%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d %s", bytes>>u.shift, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func (r *Report) writeGPUs(b *strings.Builder) {
	fmt.Fprintf(b, "%-5s %-13s %-9s %-9s %-8s %-16s %s\n", "GPU", "PCI address", "NUMA node", "PCIe", "NVLinks", "model", "processors of host memory")
	for _, g := range r.GPUs {
		node, pcie, nvlinks, model := "-", "-", "-", "not known"
		if g.Node >= 0 {
			node = fmt.Sprint(g.Node)
		}
		if l := g.Links; l != nil {
			pcie, nvlinks = fmt.Sprintf("gen %d x%d", l.MaxGen, l.MaxWidth), fmt.Sprint(l.NVLinks)
		}
		if g.Model != "" {
			model = g.Model
		}
		cpus := g.CPUs
		cpus = cmp.Or(cpus, "any")
		fmt.Fprintf(b, "%-5d %-13s %-9s %-9s %-8s %-16s %s\n", g.Index, g.Bus, node, pcie, nvlinks, model, cpus)
	}
	b.WriteByte('\n')
}

func (f *Family) matrix() bool {
	for _, c := range f.Cells {
		if c.From != c.To && c.From != Host && c.To != Host {
			return true
		}
	}
	return false
}

// cell is the family's for a pair, of either direction where there is one only.
func (f *Family) cell(from, to int) *Cell {
	var other *Cell
	for i := range f.Cells {
		c := &f.Cells[i]
		if c.From == from && c.To == to {
			return c
		}
		if c.From == to && c.To == from {
			other = c
		}
	}
	return other
}

// text is a cell in so many columns: value, fraction of the reference, mark.
func (c *Cell) text() string {
	switch {
	case c.Verdict == result.Skip:
		return "N/A      "
	case c.Value == 0:
		return "error    "
	case c.Reference == 0:
		return fmt.Sprintf("%.1f     %-1s", c.Value, marks[c.Verdict])
	}
	return fmt.Sprintf("%.1f %3.0f%%%-1s", c.Value, 100*c.Efficiency, marks[c.Verdict])
}

const column = 14

// writeVectors writes the families that have a cell a GPU as one table, a column
// each.
func (r *Report) writeVectors(b *strings.Builder) {
	var fs []*Family
	for i := range r.Families {
		if f := &r.Families[i]; !f.matrix() {
			fs = append(fs, f)
		}
	}
	if len(fs) == 0 {
		return
	}
	b.WriteString("Each GPU: GB/s and per cent of the peak (H2D and D2H of all at once: of what the GPU has alone)\n")
	fmt.Fprintf(b, "%5s", "GPU")
	for _, f := range fs {
		fmt.Fprintf(b, "%*s ", column, heading(f))
	}
	b.WriteByte('\n')
	for _, g := range r.GPUs {
		fmt.Fprintf(b, "%5d", g.Index)
		for _, f := range fs {
			text := ""
			for i := range f.Cells {
				if c := &f.Cells[i]; max(c.From, c.To) == g.Index {
					text = c.text()
				}
			}
			fmt.Fprintf(b, "%*s ", column, text)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}

// headings of families with a cell a GPU.
var headings = map[string]string{
	"host_to_device": "H2D", "device_to_host": "D2H", "host_to_device_all": "H2D all", "device_to_host_all": "D2H all",
	"local_ce": "local CE", "local_sm": "local SM", "host_latency": "host, ns",
}

func heading(f *Family) string { return headings[f.Name] + "      " }

// writeMatrix writes a family of pairs.
func (r *Report) writeMatrix(b *strings.Builder, f *Family) {
	fmt.Fprintf(b, "%s%s, %s", strings.ToUpper(f.Title[:1]), f.Title[1:], f.Unit)
	if ref := f.reference(); ref > 0 {
		fmt.Fprintf(b, ", of %.0f", ref)
	}
	fmt.Fprintf(b, "\n%9s", `from\to`)
	for _, g := range r.GPUs {
		fmt.Fprintf(b, "%*d%6s", column-5, g.Index, "")
	}
	b.WriteByte('\n')
	for _, from := range r.GPUs {
		fmt.Fprintf(b, "%9d", from.Index)
		for _, to := range r.GPUs {
			text := "-      "
			if c := f.cell(from.Index, to.Index); c != nil && from.Index != to.Index {
				text = c.text()
			}
			fmt.Fprintf(b, "%*s ", column, text)
		}
		b.WriteByte('\n')
	}
	if why := f.unable(); why != "" {
		fmt.Fprintf(b, "N/A: %s\n", why)
	}
	b.WriteByte('\n')
}

// reference is that of all cells, if it is the same.
func (f *Family) reference() (ref float64) {
	for _, c := range f.Cells {
		if ref != 0 && c.Reference != ref {
			return 0
		}
		ref = c.Reference
	}
	return ref
}

// unable is why cells could not be measured.
func (f *Family) unable() string {
	for _, c := range f.Cells {
		if c.Verdict == result.Skip {
			return c.Reason
		}
	}
	return ""
}

// writeVersus writes what plain copies reached, family by family.
func (r *Report) writeVersus(b *strings.Builder) {
	first := true
	for _, f := range r.Families {
		for _, c := range f.Cells {
			if c.Versus == nil {
				continue
			}
			if first {
				fmt.Fprintf(b, "In turns with synchronous calls of %s: GB/s, GB/s, ratio\n", c.Versus.Way)
				first = false
			}
			fmt.Fprintf(b, "  %-22s %-11s %9.1f %9.1f %6.3f\n", f.Name, c.name(), c.Value, c.Versus.Value, c.Versus.Ratio)
		}
	}
	if !first {
		b.WriteByte('\n')
	}
}

func (r *Report) writeEnd(b *strings.Builder) {
	fmt.Fprintln(b, r.counters())
	fmt.Fprintf(b, "Verdict: %s", r.Verdict)
	if r.Verdict.Bad() {
		b.WriteString(" (? is a warning, ! a failure)")
	}
	b.WriteByte('\n')
	for _, f := range r.Findings {
		fmt.Fprintf(b, "  %s  %s\n", f.Verdict, f.Text)
	}
}

// counters says what became of the links' counters.
func (r *Report) counters() string {
	known, moved := 0, map[string]uint64{}
	for _, f := range r.Families {
		for _, c := range f.Changes {
			known += len(c.After.Errors)
			for name, n := range c.Difference {
				moved[name] += n
			}
		}
	}
	switch {
	case known == 0:
		return "Error counters of NVLink and PCIe: not known"
	case len(moved) == 0:
		return "Error counters of NVLink and PCIe: none moved"
	}
	var all []string
	for _, name := range sortedKeys(moved) {
		all = append(all, fmt.Sprintf("%s by %d", name, moved[name]))
	}
	return "Error counters of NVLink and PCIe, all GPUs together, went up: " + strings.Join(all, ", ")
}
