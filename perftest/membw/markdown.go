package membw

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/stat"
)

// WriteMarkdown writes what reports say, one line a family: for documents.
func WriteMarkdown(w io.Writer, reports []*Report) error {
	var b strings.Builder
	for i, r := range reports {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s, %s, %s a copy, median of %d samples of %d copies:\n\n", r.count(), r.Driver, size(r.Bytes), r.Samples, r.Copies)
		b.WriteString("| copy | unit | least | median | most | of the peak | cuMemcpy | ratio | verdict |\n|---|---|---|---|---|---|---|---|---|\n")
		for _, f := range r.Families {
			b.WriteString(f.markdown())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown is a family's line. Its verdict is that of its worst cell.
func (f *Family) markdown() string {
	var values, efficiencies, rivals, ratios []float64
	verdict := result.Verdict("")
	for _, c := range f.Cells {
		verdict = result.Worst(verdict, c.Verdict)
		if c.Value == 0 {
			continue
		}
		values = append(values, c.Value)
		if c.Reference > 0 {
			efficiencies = append(efficiencies, c.Efficiency)
		}
		if c.Versus != nil {
			rivals, ratios = append(rivals, c.Versus.Value), append(ratios, c.Versus.Ratio)
		}
	}
	if len(values) == 0 {
		return fmt.Sprintf("| %s | %s | | | | | | | %s |\n", f.Title, f.Unit, cmp.Or(verdict, result.Skip))
	}
	peak, rival, ratio := "", "", ""
	if len(efficiencies) > 0 {
		peak = fmt.Sprintf("%.0f %%", 100*stat.Median(efficiencies))
	}
	if len(rivals) > 0 {
		rival, ratio = fmt.Sprintf("%.1f", stat.Median(rivals)), fmt.Sprintf("%.3f", stat.Median(ratios))
	}
	return fmt.Sprintf("| %s | %s | %.1f | %.1f | %.1f | %s | %s | %s | %s |\n", f.Title, f.Unit,
		slices.Min(values), stat.Median(values), slices.Max(values), peak, rival, ratio, cmp.Or(verdict, result.Skip))
}
