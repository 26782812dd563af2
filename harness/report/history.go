package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// History writes a self-contained page on values over time. For each machine it shows the
// certificates, what drifted, what changed, and a plot for each check with a line for each GPU; for
// links it has a plot for each GPU that they start at. Like HTML's page, it loads nothing from
// elsewhere.
func History(w io.Writer, title string, h *history.History) error {
	h = clean(h)
	view := historyView{Title: words.Line(title), Fleet: plainMarks(h.Fleet())}
	for _, m := range h.Machines {
		view.Stories = append(view.Stories, storyOf(&m, false))
	}
	return pages.ExecuteTemplate(w, "history.html", view)
}

// plainMarks separates the words that lines begin with by a colon, not by columns.
func plainMarks(lines []string) []string {
	for i, line := range lines {
		if mark, rest, ok := strings.Cut(line, "  "); ok {
			lines[i] = mark + ": " + strings.TrimSpace(rest)
		}
	}
	return lines
}

type historyView struct {
	Title   string
	Fleet   []string
	Stories []*story
}

// earlier returns the story of a certificate's subject in its suite; nil if the others contain no
// certificate of it.
func earlier(s *certificate.Statement, others []*certificate.Statement) *story {
	_, digest := history.Subject(s)
	c := history.NewCollector(history.Options{})
	for _, o := range append([]*certificate.Statement{s}, others...) {
		if _, its := history.Subject(o); its == digest && its != "" && o.Predicate.Suite == s.Predicate.Suite {
			c.Add(o)
		}
	}
	for _, m := range clean(c.History()).Machines {
		if len(m.Runs) > 1 {
			return storyOf(&m, true)
		}
	}
	return nil
}

// A story shows the certificates of a machine or an image, latest first, and how its figures
// developed.
type story struct {
	Name    string
	Runs    []storyLine
	Lines   []string
	Changes []string
	Plots   []plot
}

// A storyLine is the line of one certificate in a story.
type storyLine struct {
	Time, Sign, Word, Suite, Checks, Harness, Driver string
	Verdict                                          result.Verdict
}

// storyOf creates the story of a machine. Pairs get one plot for each first object, or, if short is
// set, one plot with the worst pair of each first object.
func storyOf(m *history.Machine, short bool) *story {
	s := &story{Name: cmp.Or(m.Name, "no subject"), Lines: plainMarks(m.Lines())}
	for _, r := range slices.Backward(m.Runs) {
		s.Runs = append(s.Runs, storyLine{
			Time: r.At.Format(time.RFC3339), Sign: marks[r.Verdict].sign, Word: verdictNames[r.Verdict], Verdict: r.Verdict,
			Suite: r.Suite, Checks: counts(r.Checks, r.Took), Harness: r.Harness, Driver: r.Driver,
		})
	}
	for _, c := range slices.Backward(m.Changes) {
		s.Changes = append(s.Changes, fmt.Sprintf("%s: %s: %s to %s", c.At.Format(time.RFC3339), c.What, c.From, c.To))
	}
	for _, t := range trends(m, short) {
		if len(t.times) > 1 {
			s.Plots = append(s.Plots, t.plot())
		}
	}
	return s
}

// A trend is one quantity of one check over time.
type trend struct {
	title, unit string
	limit       *result.Limit // the latest
	lower       bool          // lower is better
	times       []int64       // milliseconds since 1970
	order       []string      // keys of lines
	lines       map[string]*trendLine
}

// A trendLine is the line of one object.
type trendLine struct {
	name string
	at   map[int64]history.Value // by milliseconds since 1970
}

// trends groups a machine's series into trends, in the order of the series.
func trends(m *history.Machine, short bool) (out []*trend) {
	at := map[string]*trend{}
	for _, s := range m.Series {
		title, id, name := join(s.Check, s.Quantity)+m.InSuite(s.Suite), cmp.Or(s.ID, s.Object), cmp.Or(s.Object, "measured")
		switch {
		case s.Peer != "" && short:
			title += ", worst of each"
		case s.Peer != "":
			title += ", " + name + " to others"
			id, name = id+" "+cmp.Or(s.PeerID, s.Peer), name+" → "+s.Peer
		}
		key := title + " " + s.Unit
		if at[key] == nil {
			at[key] = &trend{title: title, unit: s.Unit, limit: s.Limit, lower: s.Better == result.Lower, lines: map[string]*trendLine{}}
			out = append(out, at[key])
		}
		at[key].add(id, name, s.Values)
	}
	for _, t := range out {
		t.date()
	}
	return out
}

// add adds values to a line. If the line has a value at the same time, the worse one stays.
func (t *trend) add(id, name string, values []history.Value) {
	l := t.lines[id]
	if l == nil {
		l = &trendLine{name: name, at: map[int64]history.Value{}}
		t.lines[id] = l
		t.order = append(t.order, id)
	}
	for _, v := range values {
		when := v.At.UnixMilli()
		if was, ok := l.at[when]; ok {
			if !t.worse(v.Value, was.Value) {
				v.Value = was.Value
			}
			v.Verdict = result.Worst(v.Verdict, was.Verdict)
		}
		l.at[when] = v
	}
}

// date collects the times that have values.
func (t *trend) date() {
	for _, l := range t.lines {
		t.times = slices.AppendSeq(t.times, maps.Keys(l.at))
	}
	slices.Sort(t.times)
	t.times = slices.Compact(t.times)
}

// worse reports whether a is worse than b.
func (t *trend) worse(a, b float64) bool {
	if t.lower {
		return a > b
	}
	return a < b
}

// worst returns the line with the worst latest value, and that value.
func (t *trend) worst() (id string, value float64) {
	last := t.times[len(t.times)-1]
	for _, i := range t.order {
		if p, ok := t.lines[i].at[last]; ok && (id == "" || t.worse(p.Value, value)) {
			id, value = i, p.Value
		}
	}
	return id, value
}

// plot draws a small plot of a trend, with the currently worst line on top of the others.
func (t *trend) plot() plot {
	worst, value := t.worst()
	p := plot{Title: t.title, Small: true, YName: t.unit}
	p.Note = fmt.Sprintf("worst at last: %s, %s", t.lines[worst].name, figure(value, t.unit))
	if len(t.order) == 1 {
		p.Note = "at last: " + figure(value, t.unit)
	}
	var xs, ys []float64
	for _, l := range t.lines {
		for _, at := range l.at {
			ys = append(ys, at.Value)
		}
	}
	for _, when := range t.times {
		xs = append(xs, float64(when/1000))
	}
	if t.limit != nil {
		ys = append(ys, t.limit.Value)
		p.Note += fmt.Sprintf("; dashed: the limit, %s %s (%s)", limitWords[t.limit.Kind], figure(t.limit.Value, t.unit), t.limit.Source)
	}
	p.Alt = fmt.Sprintf("%d values of %d %s over time; %s", len(t.times), len(t.order), words.Form(len(t.order), "object"), p.Note)
	t.table(&p)
	if !drawable(ys) || !drawable(xs) {
		p.Note += "; such figures cannot be drawn"
		return p
	}
	p.Drawn = true
	p.frame(340, 180, 52, 12, 12, 26)
	x := calendar(xs[0], xs[len(xs)-1], p.Left, p.Right)
	y := rounded(slices.Min(ys), slices.Max(ys), p.Bottom, p.Top, 4)
	p.XTicks, p.YTicks = x.ticks, y.ticks
	for _, id := range append(slices.DeleteFunc(slices.Clone(t.order), func(s string) bool { return s == worst }), worst) {
		var points [][2]float64
		for i, when := range t.times {
			if at, ok := t.lines[id].at[when]; ok {
				points = append(points, [2]float64{x.at(xs[i]), y.at(at.Value)})
			}
		}
		class := "line-rest"
		if id == worst {
			class = "line-0"
		}
		p.addLine(t.lines[id].name, class, 0, points)
	}
	if t.limit != nil {
		p.addRule("limit", "", y.at(t.limit.Value))
	}
	return p
}

// table sets the table, latest first.
func (t *trend) table(p *plot) {
	p.TableHead = []string{"time"}
	for _, id := range t.order {
		p.TableHead = append(p.TableHead, t.lines[id].name+", "+t.unit)
	}
	for _, when := range slices.Backward(t.times) {
		row := []string{time.UnixMilli(when).UTC().Format(time.RFC3339)}
		for _, id := range t.order {
			text := ""
			if at, ok := t.lines[id].at[when]; ok {
				text = fmt.Sprintf("%.4g", at.Value)
				if at.Verdict != result.Pass {
					text += " " + marks[at.Verdict].sign + " " + outcomes[at.Verdict]
				}
			}
			row = append(row, text)
		}
		p.TableRows = append(p.TableRows, row)
	}
}
