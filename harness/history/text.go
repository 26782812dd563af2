package history

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
	"github.com/assay-hpc/assay/internal/words"
)

// TextOptions are for WriteText.
type TextOptions struct {
	Verbose bool // also lists each pair that did not drift
}

// WriteText writes a history as text: for each machine a table of its figures and then what
// changed, and finally the drifts.
func (h *History) WriteText(w io.Writer, o TextOptions) error {
	b := new(strings.Builder)
	for _, m := range h.Machines {
		m.text(b, o)
	}
	lines := h.Lines()
	for _, line := range lines {
		fmt.Fprintln(b, line)
	}
	if len(lines) > 0 {
		b.WriteByte('\n')
	}
	drifts, better := len(h.Drifts())+len(h.Shared), 0
	for _, d := range h.Drifts() {
		better += boolInt(d.Better)
	}
	for _, s := range h.Shared {
		better += boolInt(s.Better)
	}
	fmt.Fprintf(b, "%s of %s; %s (more than %s, and than the noise), %d for the better",
		words.Count(h.Certificates, "certificate"), words.Count(len(h.Machines), "machine"), words.Count(drifts, "drift"), percent(h.Tolerance), better)
	if h.Repeated > 0 {
		fmt.Fprintf(b, "; %d repeated", h.Repeated)
	}
	if h.Refused > 0 {
		fmt.Fprintf(b, "; %d refused", h.Refused)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

func (m *Machine) text(b *strings.Builder, o TextOptions) {
	digest := m.Digest[:min(len(m.Digest), len("sha256:")+12)]
	fmt.Fprintf(b, "%s  %s  %s, %s to %s\n\n", cmp.Or(m.Name, "no subject"), digest, words.Count(m.Certificates, "certificate"), stamp(m.First), stamp(m.Last))
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(m.Series) > 0 {
		fmt.Fprintf(t, "%sn\tfirst\tmedian\tlast\tunit\tchange\tnoise\tsees\t\n", left("figure"))
	}
	for i := 0; i < len(m.Series); {
		n := i + 1
		for n < len(m.Series) && sameTable(m.Series[n].Thing, m.Series[i].Thing) {
			n++
		}
		title := strings.TrimSpace(m.Series[i].Check+" "+m.Series[i].Quantity) + m.InSuite(m.Series[i].Suite)
		fmt.Fprintf(t, "%s\t\t\t\t\t\t\t\t\n", left(title))
		rows(t, m.Series[i:n], o)
		i = n
	}
	t.Flush()
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	b.WriteByte('\n')
	for _, c := range m.Changes {
		fmt.Fprintf(b, "%s  %s: %s to %s\n", stamp(c.At), c.What, c.From, c.To)
	}
	for _, v := range m.Verdicts {
		line := fmt.Sprintf("%s  verdict of %s: %s to %s", stamp(v.At), cmp.Or(v.Check, "the whole")+m.InSuite(v.Suite), v.From, v.To)
		if v.Reason != "" {
			line += ": " + v.Reason
		}
		fmt.Fprintln(b, line)
	}
	if len(m.Changes)+len(m.Verdicts) > 0 {
		b.WriteByte('\n')
	}
}

// sameTable reports whether two figures belong under one heading.
func sameTable(a, b Thing) bool {
	return a.Suite == b.Suite && a.Check == b.Check && a.Quantity == b.Quantity
}

// nameWidth is the width of the column of names.
const nameWidth = 26

// left returns a left-aligned cell; the table's other cells are right-aligned.
func left(s string) string { return fmt.Sprintf("%-*s\t", nameWidth, s) }

// rows writes the figures of a heading. There are many pairs, so those that did not drift share
// one line.
func rows(w io.Writer, all []Series, o TextOptions) {
	var quiet []Series
	for _, s := range all {
		if s.Peer != "" && len(s.Drifts) == 0 && !o.Verbose {
			quiet = append(quiet, s)
			continue
		}
		name := cmp.Or(s.Object, "all")
		if s.Peer != "" {
			name += " to " + s.Peer
		}
		seriesRow(w, name, s)
	}
	if len(quiet) == 0 {
		return
	}
	pick := func(f func(Series) float64) float64 {
		var v []float64
		for _, s := range quiet {
			v = append(v, f(s))
		}
		return stat.Median(v)
	}
	sum := Series{
		Thing: quiet[0].Thing, Points: slices.MaxFunc(quiet, func(a, b Series) int { return cmp.Compare(a.Points, b.Points) }).Points,
		First: pick(func(s Series) float64 { return s.First }), Last: pick(func(s Series) float64 { return s.Last }),
		Median: pick(func(s Series) float64 { return s.Median }), Noise: pick(func(s Series) float64 { return s.Noise }),
		Seen: pick(func(s Series) float64 { return s.Seen }),
	}
	seriesRow(w, fmt.Sprintf("%d pairs, median", len(quiet)), sum)
}

func seriesRow(w io.Writer, name string, s Series) {
	change, mark := relative(s.First, s.Last), ""
	if d := s.drift(); d != nil {
		change, mark = d.Change, "  DRIFT"
		if d.Better {
			mark = "  better"
		}
	}
	sees := ""
	if s.Seen > 0 {
		sees = percent(s.Seen)
	}
	fmt.Fprintf(w, "%s%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", left("  "+name), s.Points, formatNumber(s.First), formatNumber(s.Median), formatNumber(s.Last), s.Unit,
		signed(change), "±"+percent(ofValue(s.Noise, s.Median)), sees, mark)
}

// ofValue returns noise relative to a value.
func ofValue(noise, value float64) float64 {
	if value == 0 {
		return 0
	}
	return noise / math.Abs(value)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// formatNumber prints four significant digits.
func formatNumber(v float64) string {
	a := math.Abs(v)
	switch {
	case v == math.Trunc(v) && a < 1e7, a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// percent prints one decimal below ten percent.
func percent(v float64) string {
	if math.Abs(v) < 0.0995 {
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

func signed(v float64) string {
	if v > 0 {
		return "+" + percent(v)
	}
	return percent(v)
}
