package membw

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
)

// Marks of verdicts, printed after a value.
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
	for i := range r.Results {
		if f := familyOf(r.Results[i].ID); f.shape.matrix() && len(r.Results[i].Objects) > 0 {
			r.writeMatrix(&b, f, r.Results[i].Objects)
		}
	}
	r.writeVersus(&b)
	r.writeEnd(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// count is the number and name of the GPUs, as in "4 x NVIDIA H200".
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

// size formats a size in the largest unit that divides it.
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

// object returns the object of a pair, or of the reversed pair if that covers both directions.
func object(objects []result.Object, name, peer string) *result.Object {
	for _, ends := range [2][2]string{{name, peer}, {peer, name}} {
		for i := range objects {
			if o := &objects[i]; o.Name == ends[0] && o.Peer == ends[1] && o.Quantity == "" {
				return o
			}
		}
	}
	return nil
}

// cell formats a figure in columns: value, percentage of the reference, mark.
func cell(o *result.Object) string {
	switch m := o.Measured; {
	case o.Verdict == result.Skip:
		return "N/A      "
	case m == nil:
		return "error    "
	case m.Expected == 0:
		return fmt.Sprintf("%.1f     %-1s", m.Value, marks[o.Verdict])
	default:
		return fmt.Sprintf("%.1f %3.0f%%%-1s", m.Value, 100*m.Ratio, marks[o.Verdict])
	}
}

const column = 14

// writeVectors writes the families that have one figure per GPU as one table, one column per
// family.
func (r *Report) writeVectors(b *strings.Builder) {
	var vectors []*result.Result
	for i := range r.Results {
		if res := &r.Results[i]; familyOf(res.ID).heading != "" && len(res.Objects) > 0 {
			vectors = append(vectors, res)
		}
	}
	if len(vectors) == 0 {
		return
	}
	b.WriteString("Each GPU: GB/s and per cent of the peak (H2D and D2H of all at once: of what the GPU has alone)\n")
	fmt.Fprintf(b, "%5s", "GPU")
	for _, res := range vectors {
		fmt.Fprintf(b, "%*s ", column, familyOf(res.ID).heading+"      ")
	}
	b.WriteByte('\n')
	for _, g := range r.GPUs {
		fmt.Fprintf(b, "%5d", g.Index)
		for _, res := range vectors {
			text := ""
			if o := object(res.Objects, gpuName(g.Index), ""); o != nil {
				text = cell(o)
			}
			fmt.Fprintf(b, "%*s ", column, text)
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}

// writeMatrix writes a family of pairs.
func (r *Report) writeMatrix(b *strings.Builder, f *family, objects []result.Object) {
	fmt.Fprintf(b, "%s%s, %s", strings.ToUpper(f.title[:1]), f.title[1:], f.unit())
	if ref := reach(objects); ref > 0 {
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
			if o := object(objects, gpuName(from.Index), gpuName(to.Index)); o != nil {
				text = cell(o)
			}
			fmt.Fprintf(b, "%*s ", column, text)
		}
		b.WriteByte('\n')
	}
	for _, o := range objects {
		if o.Verdict == result.Skip {
			fmt.Fprintf(b, "N/A: %s\n", o.Reason)
			break
		}
	}
	b.WriteByte('\n')
}

// reach is the value that all objects should reach, or 0 if it is not the same for all.
func reach(objects []result.Object) (ref float64) {
	for _, o := range objects {
		if o.Measured == nil || o.Quantity == rival {
			continue
		}
		if ref != 0 && o.Measured.Expected != ref {
			return 0
		}
		ref = o.Measured.Expected
	}
	return ref
}

// writeVersus writes what plain copies reached, family by family.
func (r *Report) writeVersus(b *strings.Builder) {
	first := true
	for _, res := range r.Results {
		for _, o := range res.Objects {
			if o.Quantity != rival {
				continue
			}
			if first {
				fmt.Fprintf(b, "In turns with synchronous calls of %s: GB/s, GB/s, ratio\n", rival)
				first = false
			}
			own, name := 0.0, o.Name
			if ours := object(res.Objects, o.Name, o.Peer); ours.Measured != nil {
				own = ours.Measured.Value
			}
			if o.Peer != "" {
				name += " to " + strings.TrimPrefix(o.Peer, "GPU ")
			}
			fmt.Fprintf(b, "  %-22s %-11s %9.1f %9.1f %6.3f\n", res.ID, name, own, o.Measured.Value, own/o.Measured.Value)
		}
	}
	if !first {
		b.WriteByte('\n')
	}
}

func (r *Report) writeEnd(b *strings.Builder) {
	verdict := result.Pass
	for _, res := range r.Results {
		verdict = result.Worst(verdict, res.Verdict)
		if res.ID == linksID && !res.Verdict.Bad() {
			fmt.Fprintf(b, "Links: %s\n", res.Reason)
		}
	}
	fmt.Fprintf(b, "Verdict: %s", verdict)
	if verdict.Bad() {
		b.WriteString(" (? is a warning, ! a failure)")
	}
	b.WriteByte('\n')
	for _, res := range r.Results {
		switch {
		case !res.Verdict.Bad():
		case res.ID == linksID:
			for _, o := range res.Objects {
				fmt.Fprintf(b, "  %s  %s: %s\n", o.Verdict, o.Name, o.Reason)
			}
		default:
			fmt.Fprintf(b, "  %s  %s: %s\n", res.Verdict, familyOf(res.ID).title, res.Reason)
		}
	}
}
