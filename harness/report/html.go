package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/plain"
)

// A Signature says what is known of who signed a certificate.
type Signature struct {
	Keys     []string // ids of the keys; none: it is not signed
	Verified bool     // by a key that the reader gave
}

// String is a sentence.
func (s *Signature) String() string {
	keys := strings.Join(s.Keys, ", ")
	switch {
	case len(s.Keys) == 0:
		return "It is not signed."
	case s.Verified:
		return "The signature of " + keys + " verifies."
	}
	return "It says that " + keys + " signed it; nobody has verified that here (harness verify does)."
}

// A Page says what HTML shows beside the certificate.
type Page struct {
	Signature *Signature // nil: nothing is said about it
	// History has other certificates, of which those of the same suite about the
	// same machine or image are shown: how values came about.
	History []*certificate.Statement
}

//go:embed *.html
var pageFiles embed.FS

var pages = template.Must(template.ParseFS(pageFiles, "*.html"))

// shortTable is how many checks a table has that is not folded.
const shortTable = 12

// The measures of a bar: it ends at barMost times the expected value.
const (
	barWidth = 120
	barMost  = 1.2
)

// HTML writes a certificate as a page of its own: nothing of it comes from
// elsewhere, and nothing of it runs.
func HTML(w io.Writer, s *certificate.Statement, about Page) error {
	s = cleanStatement(s)
	p := &s.Predicate
	view := pageView{
		Suite: p.Suite, Verdict: p.Verdict, Word: words[p.Verdict], Sign: marks[p.Verdict].sign, Summary: counts(result.Count(p.Results), p.Finished.Sub(p.Started)),
		When: p.Finished.Format(time.RFC3339), Harness: p.Harness.Version, Facts: facts(s),
		BarWidth: barWidth, BarFull: barWidth / barMost,
	}
	if about.Signature != nil {
		view.Signature = plain.Line(about.Signature.String())
	}
	if p.Node != nil {
		view.Node, view.NodeFacts = p.Node.Name, nodeFacts(p.Node)
		view.Machine = join(platform(p.Node), gpus(p.Node), ports(p.Node), prefixed("driver ", p.Node.Driver))
		if p.Node.Topology != nil && len(p.Node.Topology.Parts) > 0 {
			d := draw(p.Node.Topology, p.Results)
			view.Topology = &d
		}
	}
	for i, r := range p.Results {
		row := rowOf(r)
		view.Curves = append(view.Curves, curvePlots(&r)...)
		for _, m := range heatMaps(&r) {
			m.ID = fmt.Sprintf("pairs-%d-%d", i, len(row.Heat))
			row.Heat = append(row.Heat, m)
			view.Heat = append(view.Heat, m)
		}
		if r.Verdict == result.Skip {
			view.Skipped = append(view.Skipped, row)
			continue
		}
		view.add(row)
	}
	view.Headlines = headlinesOf(p.Results)
	made := len(p.Results) - len(view.Skipped)
	view.Made, view.Short = fmt.Sprintf("All %d %s that were made", made, plural(made, "check")), made <= shortTable
	for _, f := range faulty(p.Results) {
		row := rowOf(*f.Result)
		row.ID = f.name()
		if len(f.also) > 0 {
			row.Also = strings.Join(f.also, ", ")
		}
		view.Faults = append(view.Faults, row)
	}
	view.History = earlier(s, about.History)
	return pages.ExecuteTemplate(w, "page.html", view)
}

type pageView struct {
	Suite, Word, Sign, Summary, When, Harness string
	Verdict                                   result.Verdict
	Faults, Skipped                           []row
	Groups                                    []group
	Headlines                                 []headline
	Made                                      string // how many checks
	Short                                     bool   // their table is not folded
	Heat                                      []heatMap
	Curves                                    []plot
	Node, Machine                             string
	NodeFacts, Facts                          []fact
	Topology                                  *drawing
	History                                   *story
	Signature                                 string
	BarWidth, BarFull                         float64
}

// A group is what concerns one component, or one part of what has none.
type group struct {
	Name string
	Rows []row
}

// A row is a check's.
type row struct {
	result.Result
	Sign, Word string
	Took       string
	Also       string // checks that say the same
	measurement
	Bunches []bunchRow // of what is not well
	Tally   string
	Each    []objectRow
	Heat    []heatMap
}

// A measurement is a value in the words of a table's cells.
type measurement struct {
	Value, Spread, Limit, Expected, Share string
	Bar                                   float64 // pixels
	HasBar                                bool
}

// A bunchRow is a line about objects.
type bunchRow struct {
	Verdict     result.Verdict
	Sign, Word  string
	Names, Said string
}

// An objectRow is an object's.
type objectRow struct {
	result.Object
	Sign, Word string
	measurement
}

func rowOf(r result.Result) row {
	out := row{Result: r, Sign: marks[r.Verdict].sign, Word: outcomes[r.Verdict], Took: fmt.Sprintf("%.1f s", r.Seconds), measurement: measurementOf(r.Measured)}
	for _, b := range bunches(r.Objects) {
		if worthy(b.Verdict) {
			out.Bunches = append(out.Bunches, bunchRow{b.Verdict, marks[b.Verdict].sign, outcomes[b.Verdict], b.names(), b.said()})
		}
	}
	for _, o := range r.Objects {
		out.Each = append(out.Each, objectRow{o, marks[o.Verdict].sign, outcomes[o.Verdict], measurementOf(o.Measured)})
	}
	if len(r.Objects) > 0 {
		out.Tally = tally(r.Objects)
	}
	if r.Measured == nil {
		out.Value, out.Limit = valuesOf(r.Objects)
	}
	return out
}

func measurementOf(m *result.Measurement) (out measurement) {
	if m == nil {
		return out
	}
	out.Value, out.Limit, out.Spread = figure(m.Value, m.Unit), limitText(m), spreadText(m)
	if m.Expected != 0 {
		out.Expected = expectedText(m)
		out.Share = fmt.Sprintf("%.0f\u00a0%%", 100*m.Ratio)
		out.HasBar = true
		out.Bar = barWidth * min(max(m.Ratio, 0), barMost) / barMost
	}
	return out
}

// add puts a row with its component's others, in the order in which components
// come first.
func (v *pageView) add(r row) {
	name := r.Component
	if name == "" {
		name, _, _ = strings.Cut(r.ID, "/")
	}
	for i := range v.Groups {
		if v.Groups[i].Name == name {
			v.Groups[i].Rows = append(v.Groups[i].Rows, r)
			return
		}
	}
	v.Groups = append(v.Groups, group{name, []row{r}})
}
