package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
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

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// The measures of a bar: it ends at barMost times the expected value.
const (
	barWidth = 120
	barMost  = 1.2
)

// HTML writes a certificate as a page of its own: nothing of it comes from
// elsewhere, and nothing of it runs. The signature may be nil: nothing is then
// said about it.
func HTML(w io.Writer, s *certificate.Statement, sig *Signature) error {
	p := &s.Predicate
	view := pageView{
		Suite: printable(p.Suite), Verdict: p.Verdict, Word: words[p.Verdict], Sign: marks[p.Verdict].sign, Summary: counts(p),
		When: p.Finished.Format(time.RFC3339), Harness: printable(p.Harness.Version), Facts: facts(s), Signature: sig,
		BarWidth: barWidth, BarFull: barWidth / barMost,
	}
	for _, r := range p.Results {
		row := rowOf(r)
		switch r.Verdict {
		case certificate.Fail, certificate.Error:
			view.Faults = append(view.Faults, row)
		case certificate.Skip:
			view.Skipped = append(view.Skipped, row)
			continue
		}
		view.add(row)
	}
	return page.Execute(w, view)
}

type pageView struct {
	Suite, Word, Sign, Summary, When, Harness string
	Verdict                                   certificate.Verdict
	Faults, Skipped                           []row
	Groups                                    []group
	Facts                                     []fact
	Signature                                 *Signature
	BarWidth, BarFull                         float64
}

// A group is what concerns one component, or one part of what has none.
type group struct {
	Name string
	Rows []row
}

type row struct {
	certificate.Result
	Sign, Word             string
	Output                 string // printable
	Took                   string
	Value, Expected, Share string
	Source                 string
	Bar                    float64 // pixels
	HasBar                 bool
}

func rowOf(r certificate.Result) row {
	for _, s := range []*string{&r.ID, &r.Component, &r.Title, &r.Reason, &r.Remedy} {
		*s = printable(*s)
	}
	out := row{Result: r, Sign: marks[r.Verdict].sign, Word: outcomes[r.Verdict], Took: fmt.Sprintf("%.1f s", r.Seconds)}
	var b strings.Builder
	for line := range strings.Lines(r.Output) {
		b.WriteString(printable(strings.TrimRight(line, "\r\n")) + "\n")
	}
	out.Output = b.String()
	m := r.Measured
	if m == nil {
		return out
	}
	out.Value = fmt.Sprintf("%.4g %s", m.Value, printable(m.Unit))
	if m.Expected != 0 {
		out.Expected = fmt.Sprintf("%.4g %s", m.Expected, printable(m.Unit))
		out.Share = fmt.Sprintf("%.0f %%", 100*m.Ratio)
		out.Source = printable(m.Source)
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
