package membw

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

// WriteMarkdown writes reports as Markdown tables for documents, one line per family.
func WriteMarkdown(w io.Writer, reports []*Report) error {
	var b strings.Builder
	for i, r := range reports {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s, %s, %s a copy, median of %d samples of %d copies:\n\n", r.count(), r.Driver, size(r.Bytes), r.Samples, r.Copies)
		b.WriteString("| copy | unit | least | median | most | of the peak | cuMemcpy | ratio | verdict |\n|---|---|---|---|---|---|---|---|---|\n")
		for _, res := range r.Results {
			if len(res.Objects) > 0 && res.ID != linksID {
				b.WriteString(markdown(&res))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown is the line of a family.
func markdown(res *result.Result) string {
	var values, shares, rivals, ratios []float64
	for _, o := range res.Objects {
		m := o.Measured
		switch {
		case m == nil:
		case o.Quantity == rival:
			rivals = append(rivals, m.Value)
			if ours := object(res.Objects, o.Name, o.Peer); ours.Measured != nil {
				ratios = append(ratios, ours.Measured.Value/m.Value)
			}
		default:
			values = append(values, m.Value)
			if m.Expected > 0 {
				shares = append(shares, m.Ratio)
			}
		}
	}
	f := familyOf(res.ID)
	if len(values) == 0 {
		return fmt.Sprintf("| %s | %s | | | | | | | %s |\n", f.title, f.unit(), res.Verdict)
	}
	peak, rival, ratio := "", "", ""
	if len(shares) > 0 {
		peak = fmt.Sprintf("%.0f %%", 100*stat.Median(shares))
	}
	if len(ratios) > 0 {
		rival, ratio = fmt.Sprintf("%.1f", stat.Median(rivals)), fmt.Sprintf("%.3f", stat.Median(ratios))
	}
	return fmt.Sprintf("| %s | %s | %.1f | %.1f | %.1f | %s | %s | %s | %s |\n", f.title, f.unit(),
		slices.Min(values), stat.Median(values), slices.Max(values), peak, rival, ratio, res.Verdict)
}

// maxReport is the largest report that is read, in bytes.
const maxReport = 32 << 20

// ReadReport reads a report from a file, which "harness bandwidth --format json" wrote.
func ReadReport(name string) (*Report, error) {
	b, err := infile.ReadArgument(name, maxReport)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	err = json.Unmarshal(b, r)
	if err == nil && (r.Schema != result.ReportSchema || r.Kind != "bandwidth") {
		err = errors.New("another schema")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is not a report of harness bandwidth, schema %d: %w", name, result.ReportSchema, err)
	}
	return r, nil
}

// DriverLine describes the driver, by its version ("" if it is not known) and that of CUDA.
func DriverLine(version string, cuda int) string {
	line := fmt.Sprintf("CUDA %d.%d", cuda/1000, cuda%1000/10)
	if version != "" {
		line = "Driver " + version + ", " + line
	}
	return line
}
