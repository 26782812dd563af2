package platform

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/hardware"
)

// A Report is what a machine is and what it should reach: the document of "harness show platform",
// schema 1.
type Report struct {
	Schema int  `json:"schema"`
	Node   Node `json:"node"`
	// Skipped is why the driver was not queried; "": it was, or the machine is from
	// a file.
	Skipped string `json:"skipped,omitempty"`
	Expectation
	Sources map[string]hardware.Source `json:"sources"` // of the figures
}

// Describe reports on a node, whose driver was not queried for the given reason; nil: it was.
func (db *DB) Describe(n Node, skipped error) *Report {
	d := &Report{Schema: 1, Node: n, Expectation: db.Expect(n)}
	if skipped != nil {
		d.Skipped = skipped.Error()
	}
	d.Sources = db.SourcesOf(d.Figures)
	return d
}

// WriteText writes the report for people.
func (d *Report) WriteText(out io.Writer) error {
	var b bytes.Buffer
	r := d.Recognition
	line := func(what, format string, a ...any) { fmt.Fprintf(&b, "%-10s %s\n", what, fmt.Sprintf(format, a...)) }
	line("machine", "%s", d.machine())
	if d.Node.Container != "" {
		line("inside", "%s", d.Node.Container)
	}
	d.writeGPUs(line)
	for _, c := range r.NICs {
		line("NICs", "%s", nicText(c, len(d.Node.GPUs)))
	}
	if len(r.NICs) == 0 {
		line("NICs", "no RDMA device")
	}
	switch {
	case r.Platform != "":
		line("platform", "%s (%s)", r.Name, r.Platform)
	case len(r.GPUs) > 0:
		line("platform", "not known: the database has none with these GPUs here")
	}
	for _, text := range r.Differences {
		line("", "differs: %s", text)
	}
	d.writeFigures(&b)
	_, err := b.WriteTo(out)
	return err
}

func (d *Report) machine() string {
	dmi := d.Node.DMI
	text := strings.TrimSpace(dmi.Vendor + " " + dmi.Product)
	if text == "" {
		text = "not named (no DMI)"
	}
	if d.Recognition.Cloud != "" {
		text += " (cloud " + d.Recognition.Cloud + ")"
	}
	return text
}

func (d *Report) writeGPUs(line func(what, format string, a ...any)) {
	r := d.Recognition
	for _, g := range r.GPUs {
		known := g.Model
		if known == "" {
			known = "not in the database"
		}
		text := fmt.Sprintf("%d x %s (%s)", g.Count, g.Name, known)
		if g.Slot.Width > 0 {
			text += fmt.Sprintf(", slot %g GT/s x%d", g.Slot.GTs, g.Slot.Width)
		}
		line("GPUs", "%s", text)
	}
	switch {
	case len(r.GPUs) == 0:
		line("GPUs", "none")
	case r.Fabric.Kind == "unknown":
		line("joined by", "not known: NVLinks were not read")
	case r.Fabric.Links == 0:
		line("joined by", "%s", r.Fabric.Kind)
	case r.Fabric.Kind == "one":
		line("NVLinks", "%d are up", r.Fabric.Links)
	case r.Fabric.Gen == "":
		line("joined by", "%s, %d links of each are up", r.Fabric.Kind, r.Fabric.Links)
	default:
		line("joined by", "%s, links of generation %s, %d of each are up", r.Fabric.Kind, r.Fabric.Gen, r.Fabric.Links)
	}
	if d.Skipped != "" {
		line("driver", "skipped: %s", d.Skipped)
	}
}

func nicText(c NICGroup, gpus int) string {
	text := fmt.Sprintf("%d x %s", c.Count, c.Name)
	if c.Gbit > 0 {
		text += fmt.Sprintf(", %g Gb/s", c.Gbit)
	}
	if c.LinkLayer != "" && c.LinkLayer != "Unspecified" { // as for EFA
		text += ", " + c.LinkLayer
	}
	if c.Active < c.Count {
		text += fmt.Sprintf(", %d active", c.Active)
	}
	if gpus > 0 && c.Count >= gpus {
		text += fmt.Sprintf(", %.3g a GPU", float64(c.Count)/float64(gpus))
	}
	return text
}

// writeFigures prints the figures, and the sources that they name.
func (d *Report) writeFigures(b *bytes.Buffer) {
	if len(d.Figures) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-53s %-8s %8s %8s %8s  %s\n", "what it should reach", "unit", "peak", "typical", "floor", "why")
	for _, e := range d.Figures {
		fmt.Fprintf(b, "%-53s %-8s %8s %8s %8s  %s\n", figureTitle(e), e.Unit, figureValue(e.Peak), figureValue(e.Typical), figureFloor(e), figureWhy(e))
	}
	fmt.Fprintf(b, "\nsources\n")
	for _, key := range slices.Sorted(maps.Keys(d.Sources)) {
		s := d.Sources[key]
		fmt.Fprintf(b, "  %-12s %s\n", key, strings.TrimSpace(strings.Join([]string{s.What, s.URL, s.File}, " ")))
	}
}

func figureTitle(e Expected) string {
	text := e.Title
	if e.GPUs > 0 {
		text += fmt.Sprintf(", %d GPUs", e.GPUs)
	}
	if e.Nodes > 1 {
		text += fmt.Sprintf(", %d nodes", e.Nodes)
	}
	if e.Bytes > 0 {
		text += ", " + sizeText(e.Bytes)
	}
	if e.Algorithm != "" {
		text += ", " + e.Algorithm
	}
	return text
}

// sizeText formats a size as the collectives do: 16G.
func sizeText(n int64) string {
	unit := ""
	for _, u := range []string{"K", "M", "G"} {
		if n%1024 == 0 {
			n, unit = n/1024, u
		}
	}
	return fmt.Sprintf("%d%s", n, unit)
}

func figureValue(c *Cited) string {
	if c == nil {
		return "-"
	}
	return threeDigits(c.Value)
}

func figureFloor(e Expected) string {
	if e.Floor == nil {
		return "-"
	}
	return threeDigits(e.Floor.Value)
}

// threeDigits formats three significant digits, or all digits before the point.
func threeDigits(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// figureWhy names the sources of the floor, and of the figures that it may be a share of.
func figureWhy(e Expected) string {
	var parts []string
	switch f := e.Floor; {
	case f == nil && e.Peak == nil && e.Typical == nil:
		return "not known: measured and not judged"
	case f == nil:
		parts = append(parts, "not judged")
	case f.Fraction == 0:
		parts = append(parts, "floor "+citedSource(f.Cited))
	case f.Fraction != 1:
		parts = append(parts, fmt.Sprintf("floor %g of the %s %s", f.Fraction, f.Of, citedSource(f.Cited)))
	}
	if e.Peak != nil {
		parts = append(parts, "peak "+citedSource(*e.Peak))
	}
	if e.Typical != nil {
		parts = append(parts, "typical "+citedSource(*e.Typical))
	}
	return strings.Join(parts, "; ")
}

// citedSource names the source, and its confidence if that is not high.
func citedSource(c Cited) string {
	if c.Confidence == High {
		return "(" + c.Source + ")"
	}
	return fmt.Sprintf("(%s, %s)", c.Source, c.Confidence)
}
