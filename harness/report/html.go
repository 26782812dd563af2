package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// A Signature says what is known about the signer of a certificate.
type Signature struct {
	Keys     []string // ids of the keys; none: not signed
	Verified bool     // by a key that the reader gave
}

// String returns a sentence.
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

// A Page is what HTML shows in addition to the certificate.
type Page struct {
	Signature *Signature // nil: the page does not mention signatures
	// History contains other certificates. Those of the same suite and the same machine or image
	// are shown, as values over time.
	History []*certificate.Statement
}

//go:embed *.html
var pageFiles embed.FS

var pages = template.Must(template.ParseFS(pageFiles, "*.html"))

// shortTable is the largest number of checks in a table that is not folded.
const shortTable = 12

// A bar ends at barMost times the expected value.
const (
	barWidth = 120
	barMost  = 1.2
)

// HTML writes a certificate as a self-contained page: it loads nothing from elsewhere and contains
// no scripts.
func HTML(w io.Writer, s *certificate.Statement, about Page) error {
	s = cleanStatement(s)
	p := &s.Predicate
	view := pageView{
		Suite: p.Suite, Verdict: p.Verdict, Word: verdictNames[p.Verdict], Sign: marks[p.Verdict].sign, Summary: counts(result.Count(p.Results), p.Finished.Sub(p.Started)),
		When: p.Finished.Format(time.RFC3339), Harness: p.Harness.Version, Facts: facts(s),
		BarWidth: barWidth, BarFull: barWidth / barMost,
	}
	if about.Signature != nil {
		view.Signature = words.Line(about.Signature.String())
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
	view.Made, view.Short = fmt.Sprintf("All %d %s that were made", made, words.Form(made, "check")), made <= shortTable
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
	Faults, Skipped                           []checkRow
	Groups                                    []group
	Headlines                                 []headline
	Made                                      string // number of checks that ran, in words
	Short                                     bool   // the table of checks is not folded
	Heat                                      []heatMap
	Curves                                    []plot
	Node, Machine                             string
	NodeFacts, Facts                          []fact
	Topology                                  *drawing
	History                                   *story
	Signature                                 string
	BarWidth, BarFull                         float64
}

// A group is the checks of one component, or, without a component, of one first part of the ID.
type group struct {
	Name string
	Rows []checkRow
}

// A checkRow is the row of one check.
type checkRow struct {
	result.Result
	Sign, Word string
	Took       string
	Also       string // checks with the same result
	measurement
	Bunches []bunchRow // for objects that are not well
	Tally   string
	Each    []objectRow
	Heat    []heatMap
}

// A measurement is a value, formatted for the cells of a table.
type measurement struct {
	Value, Spread, Limit, Expected, Share string
	Bar                                   float64 // pixels
	HasBar                                bool
}

// A bunchRow is a line about a bunch of objects.
type bunchRow struct {
	Verdict     result.Verdict
	Sign, Word  string
	Names, Said string
}

// An objectRow is the row of one object.
type objectRow struct {
	result.Object
	Sign, Word string
	measurement
}

func rowOf(r result.Result) checkRow {
	out := checkRow{Result: r, Sign: marks[r.Verdict].sign, Word: outcomes[r.Verdict], Took: fmt.Sprintf("%.1f s", r.Seconds), measurement: measurementOf(r.Measured)}
	for _, b := range bunches(r.Objects) {
		if worthy(b.Verdict) {
			out.Bunches = append(out.Bunches, bunchRow{b.Verdict, marks[b.Verdict].sign, outcomes[b.Verdict], b.names(), b.outcome()})
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

// add adds a row to the group of its component. Groups are in the order of first use.
func (v *pageView) add(r checkRow) {
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
	v.Groups = append(v.Groups, group{name, []checkRow{r}})
}
