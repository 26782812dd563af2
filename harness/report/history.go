package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/result"
)

// A story is the certificates of one suite about one machine or image, the
// oldest first.
type story struct {
	Name  string
	all   []*certificate.Statement
	Runs  []run
	Plots []plot
}

// A run is a certificate's line in a story.
type run struct {
	Time, Sign, Word, Checks, Harness, Driver string
	Verdict                                   result.Verdict
}

// identity is what a certificate is about, as a digest: the machine where there
// is one.
func identity(s *certificate.Statement) (key, name string) {
	for _, sub := range s.Subject {
		if n := s.Predicate.Node; n == nil || isNode(sub) {
			return sub.Digest["sha256"], strings.TrimPrefix(sub.Name, certificate.NodePrefix)
		}
	}
	return "", "no subject"
}

// stories gathers certificates by what they are about and by suite, in the
// order in which these come first. A certificate that is there twice counts once.
func stories(all []*certificate.Statement) (out []*story) {
	type key struct{ id, suite string }
	at := map[key]*story{}
	for _, s := range all {
		id, name := identity(s)
		k := key{id, s.Predicate.Suite}
		if at[k] == nil {
			at[k] = &story{Name: join(name, "suite "+s.Predicate.Suite)}
			out = append(out, at[k])
		}
		at[k].all = append(at[k].all, s)
	}
	for _, st := range out {
		slices.SortStableFunc(st.all, func(a, b *certificate.Statement) int {
			return a.Predicate.Finished.Compare(b.Predicate.Finished)
		})
		st.all = slices.CompactFunc(st.all, func(a, b *certificate.Statement) bool {
			return a.Predicate.Finished.Equal(b.Predicate.Finished) && a.Predicate.Started.Equal(b.Predicate.Started)
		})
	}
	return out
}

// tell fills in what is shown. Pairs become a plot for each first object, or,
// in short, one in which each first object has its worst pair.
func (s *story) tell(short bool) {
	for _, st := range slices.Backward(s.all) {
		p := &st.Predicate
		r := run{
			Time: p.Finished.Format(time.RFC3339), Sign: marks[p.Verdict].sign, Word: words[p.Verdict], Verdict: p.Verdict,
			Checks: counts(p.Results, p.Finished.Sub(p.Started)), Harness: p.Harness.Version,
		}
		if p.Node != nil {
			r.Driver = p.Node.Driver
		}
		s.Runs = append(s.Runs, r)
	}
	for _, t := range trends(s.all, short) {
		if len(t.times) > 1 {
			s.Plots = append(s.Plots, t.plot())
		}
	}
}

// A trend is how one quantity of one check came about over time.
type trend struct {
	title, unit string
	limit       *result.Limit // the latest
	lower       bool          // is better
	times       []time.Time
	order       []string // of lines
	lines       map[string]*trendLine
}

// A trendLine is an object's.
type trendLine struct {
	name string               // its latest
	at   map[int64]trendPoint // by milliseconds since 1970
}

type trendPoint struct {
	value   float64
	verdict result.Verdict
}

// trends gathers what certificates measured, in the order of the latest one.
func trends(all []*certificate.Statement, short bool) (out []*trend) {
	at := map[string]*trend{}
	for _, s := range all {
		for i := range s.Predicate.Results {
			r := &s.Predicate.Results[i]
			objects := slices.DeleteFunc(slices.Clone(r.Objects), func(o result.Object) bool { return o.Measured == nil })
			if len(objects) == 0 && r.Measured != nil {
				objects = []result.Object{{Name: "measured", Verdict: r.Verdict, Measured: r.Measured}}
			}
			for _, o := range objects {
				title, id, name := join(r.ID, o.Quantity), cmp.Or(o.ID, o.Name), o.Name
				switch {
				case o.Peer != "" && short:
					title, name = title+", worst of each", o.Name
				case o.Peer != "":
					title += ", " + o.Name + " to others"
					id, name = id+" "+o.Peer, o.Name+" → "+o.Peer
				}
				key := title + " " + o.Measured.Unit
				if at[key] == nil {
					at[key] = &trend{title: title, unit: o.Measured.Unit, lines: map[string]*trendLine{}}
					out = append(out, at[key])
				}
				at[key].lower = lowerBetter(r.ID, o)
				at[key].add(s.Predicate.Finished, id, name, o)
			}
		}
	}
	return out
}

// add notes a value, the worse one where there was one already.
func (t *trend) add(when time.Time, id, name string, o result.Object) {
	if o.Measured.Limit != nil {
		t.limit = o.Measured.Limit
	}
	if len(t.times) == 0 || !t.times[len(t.times)-1].Equal(when) {
		t.times = append(t.times, when)
	}
	l := t.lines[id]
	if l == nil {
		l = &trendLine{at: map[int64]trendPoint{}}
		t.lines[id] = l
		t.order = append(t.order, id)
	}
	l.name = name
	now := trendPoint{o.Measured.Value, o.Verdict}
	if was, ok := l.at[when.UnixMilli()]; ok {
		if !t.worse(now.value, was.value) {
			now.value = was.value
		}
		now.verdict = result.Worst(now.verdict, was.verdict)
	}
	l.at[when.UnixMilli()] = now
}

// worse reports whether a is.
func (t *trend) worse(a, b float64) bool {
	if t.lower {
		return a > b
	}
	return a < b
}

// worst is the line whose last value is, and that value.
func (t *trend) worst() (id string, value float64) {
	last := t.times[len(t.times)-1]
	for _, i := range t.order {
		if p, ok := t.lines[i].at[last.UnixMilli()]; ok && (id == "" || t.worse(p.value, value)) {
			id, value = i, p.value
		}
	}
	return id, value
}

// plot draws a trend small: the line that is worst now before the others.
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
			ys = append(ys, at.value)
		}
	}
	for _, when := range t.times {
		xs = append(xs, float64(when.Unix()))
	}
	if t.limit != nil {
		ys = append(ys, t.limit.Value)
		p.Note += fmt.Sprintf("; dashed: the limit, %s %s (%s)", limitWords[t.limit.Kind], figure(t.limit.Value, t.unit), t.limit.Source)
	}
	p.Alt = fmt.Sprintf("%d values of %d %s over time; %s", len(t.times), len(t.order), plural(len(t.order), "object"), p.Note)
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
	for _, id := range slices.Concat(slices.DeleteFunc(slices.Clone(t.order), func(s string) bool { return s == worst }), []string{worst}) {
		var points [][2]float64
		for i, when := range t.times {
			if at, ok := t.lines[id].at[when.UnixMilli()]; ok {
				points = append(points, [2]float64{x.at(xs[i]), y.at(at.value)})
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

// table has the latest first.
func (t *trend) table(p *plot) {
	p.TableHead = []string{"time"}
	for _, id := range t.order {
		p.TableHead = append(p.TableHead, t.lines[id].name+", "+t.unit)
	}
	for _, when := range slices.Backward(t.times) {
		row := []string{when.Format(time.RFC3339)}
		for _, id := range t.order {
			text := ""
			if at, ok := t.lines[id].at[when.UnixMilli()]; ok {
				text = fmt.Sprintf("%.4g", at.value)
				if at.verdict != result.Pass {
					text += " " + marks[at.verdict].sign + " " + outcomes[at.verdict]
				}
			}
			row = append(row, text)
		}
		p.TableRows = append(p.TableRows, row)
	}
}
