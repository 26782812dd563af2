package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/internal/hostlist"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// FleetLines is the largest number of lines of FleetText.
const FleetLines = 60

// How many of each thing the text has.
const (
	textOutliers   = 3 // with all that is known
	textMore       = 5 // further ones, a line each
	textGroups     = 3
	textFailures   = 5
	textMinorities = 5
	textCoverage   = 9
)

// FleetText writes a fleet as text of at most [FleetLines] lines: what stands out is in the first
// line.
func FleetText(w io.Writer, f *fleet.Fleet, opt TextOptions) error {
	t := textWriter{opt: opt, w: w, width: 80}
	if opt.Width > 0 {
		t.width = min(max(opt.Width, narrowest), unfolded)
	}
	f = clean(f)
	t.printf("%s\n%s\n", t.paint("1", shorten(fleetHeadline(f), t.width)), shorten(fleetSummary(f), t.width))
	t.fleetOutliers(f)
	t.fleetGroups(f)
	t.fleetFailures(f)
	t.fleetVersions(f)
	t.fleetCoverage(f)
	next := "harness report … --machine NODE shows one node; -o html and -o json have all"
	t.printf("\n%s\n", t.dim(shorten(next, t.width)))
	return t.err
}

// section begins a section.
func (t *textWriter) section(name string) { t.printf("\n%s\n", t.paint("1", name)) }

// short prints one line, shortened.
func (t *textWriter) short(indent int, format string, a ...any) {
	t.printf("%*s%s\n", indent, "", shorten(fmt.Sprintf(format, a...), t.width-indent))
}

func (t *textWriter) fleetOutliers(f *fleet.Fleet) {
	if len(f.Outliers) == 0 {
		return
	}
	t.section("Outliers")
	for i := range f.Outliers {
		o := &f.Outliers[i]
		d := &o.Deviations[0]
		g := &f.Figures[d.Figure]
		switch {
		case i < textOutliers:
			t.short(0, "%s", o.Node+": "+strings.TrimSpace(g.Name()+" "+deviationObject(d)))
			t.short(2, "%s", deviationText(f, d, o.Peers))
			line := "fleet " + distributionText(g, d.Value)
			if d.Over != nil {
				line += "  over time " + sparkText(d.Over)
			}
			if n := len(o.Deviations) - 1; n > 0 {
				line += fmt.Sprintf("  and %s", words.Count(n, "other"))
			}
			t.short(2, "%s", line)
			if len(o.Causes) > 0 {
				t.short(2, "cause?  %s", strings.Join(o.Causes, "; "))
			}
			t.short(2, "remedy: %s", o.Remedy)
		case i < textOutliers+textMore:
			t.short(0, "%s: %s %s", o.Node, strings.TrimSpace(g.Name()+" "+deviationObject(d)), changeText(f, d.Figure, d.Change))
		default:
			var rest []string
			for _, more := range f.Outliers[i:] {
				rest = append(rest, more.Node)
			}
			t.short(0, "%d more: %s", len(rest), hostlist.Compress(rest))
			return
		}
	}
}

func (t *textWriter) fleetGroups(f *fleet.Fleet) {
	if len(f.Groups) == 0 {
		return
	}
	t.section("Groups")
	for i := range f.Groups {
		if i == textGroups {
			t.short(0, "%d more", len(f.Groups)-i)
			return
		}
		g := &f.Groups[i]
		lines := wrap(groupSentence(f, g), t.width-2)
		for _, line := range lines[:min(len(lines), 2)] {
			t.short(0, "%s", line)
		}
		nodes := hostlist.Compress(g.Nodes)
		if len(g.Also) > 0 {
			nodes += " (also " + strings.Join(g.Also, ", ") + ")"
		}
		t.short(2, "%s", nodes)
	}
}

func (t *textWriter) fleetFailures(f *fleet.Fleet) {
	if len(f.Failures) == 0 {
		return
	}
	t.section("Checks that did not pass")
	for i := range f.Failures {
		x := &f.Failures[i]
		if i == textFailures {
			t.short(0, "%d more checks", len(f.Failures)-i)
			return
		}
		t.printf("%s ", t.mark(x.Verdict))
		nodes := hostlist.Compress(x.Nodes)
		t.printf("%s\n", shorten(fmt.Sprintf("%s: %d: %s", x.Check, len(x.Nodes), nodes), t.width-2))
		said := x.Reason
		if x.Remedy != "" && x.Verdict != result.Warn {
			said = shorten(said, (t.width-12)/2) + "; " + x.Remedy
		}
		t.short(2, "%s", said)
	}
}

func (t *textWriter) fleetVersions(f *fleet.Fleet) {
	all := minorities(f, 2)
	if len(all) == 0 {
		return
	}
	t.section("Versions that differ")
	for i, m := range all {
		if i == textMinorities {
			t.short(0, "%d more", len(all)-i)
			return
		}
		line := m.What + " " + m.Most
		for _, v := range m.Values {
			line += fmt.Sprintf("; %s: %d: %s", v.Value, v.N, v.Nodes)
		}
		if m.Left > 0 {
			line += fmt.Sprintf("; %d more", m.Left)
		}
		t.short(0, "%s", line)
	}
}

func (t *textWriter) fleetCoverage(f *fleet.Fleet) {
	t.section("Coverage")
	all := coverageFacts(f)
	for i, x := range all {
		if i == textCoverage {
			t.short(0, "%d more lines", len(all)-i)
			return
		}
		t.short(0, "%s: %s", x.Name, x.Value)
	}
}
