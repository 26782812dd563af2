package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// Fleet says in one line each what machines have in common, and what fails again.
func (h *History) Fleet() (lines []string) {
	several := slices.ContainsFunc(h.Machines, func(m Machine) bool { return m.Suites > 1 })
	for _, s := range h.Shared {
		text := s.String()
		if several && s.Suite != "" {
			text += ", suite " + s.Suite
		}
		lines = append(lines, text)
	}
	for _, o := range h.Offenders {
		lines = append(lines, o.String())
	}
	return lines
}

// Lines says in one line each what is to be known, also about each machine: what drifted, what fails
// again, outliers, changes of noise, and what could have been seen.
func (h *History) Lines() (lines []string) {
	lines = h.Fleet()
	for i := range h.Machines {
		m := &h.Machines[i]
		for _, text := range m.Lines() {
			if len(h.Machines) > 1 {
				mark, rest, _ := strings.Cut(text, "  ")
				text = line(mark, "%s: %s", cmp.Or(m.Name, "no subject"), strings.TrimSpace(rest))
			}
			lines = append(lines, text)
		}
	}
	rank := func(line string) int { return slices.Index(marks, strings.TrimSpace(line[:markWidth])) }
	slices.SortStableFunc(lines, func(a, b string) int { return rank(a) - rank(b) })
	return lines
}

// marks begin lines, in this order.
var marks = []string{"drift", "again", "better", "over", "noise", "odd", "few", "seen"}

const markWidth = 6

func line(mark, format string, a ...any) string {
	return fmt.Sprintf("%-*s  ", markWidth, mark) + fmt.Sprintf(format, a...)
}

// Lines says what is to be known about a machine, one line each.
func (m *Machine) Lines() (lines []string) {
	drifts := m.drifts()
	sortDrifts(drifts)
	for _, same := range together(drifts) {
		lines = append(lines, line(same[0].mark(), "%s%s", sentence(same), m.InSuite(same[0].Suite)))
	}
	for _, s := range m.Series {
		if n := s.NoiseChange; n != nil {
			lines = append(lines, line("noise", "%s: the noise changed from ±%s to ±%s at %s%s; the level did not drift by that", s.Thing, percent(n.Before), percent(n.After), stamp(n.At), m.InSuite(s.Suite)))
		}
	}
	for _, s := range m.Series {
		if text := s.oddities(); text != "" {
			lines = append(lines, line("odd", "%s: %s%s", s.Thing, text, m.InSuite(s.Suite)))
		}
	}
	if text := m.sees(); text != "" {
		lines = append(lines, text)
	}
	return lines
}

func (d *Drift) mark() string {
	switch {
	case d.Until != nil:
		return "over"
	case d.Better:
		return "better"
	}
	return "drift"
}

// oddities says which outliers a series has.
func (s *Series) oddities() string {
	if len(s.Outliers) == 0 {
		return ""
	}
	o := s.Outliers[len(s.Outliers)-1]
	text := fmt.Sprintf("%s %s at %s where %s is usual", formatNumber(o.Value), s.Unit, stamp(o.At), formatNumber(o.Usual))
	if n := len(s.Outliers); n > 1 {
		text = fmt.Sprintf("%d outliers, the last one %s", n, text)
	}
	if o.Last {
		return text + ": an outlier or the beginning of a change; " + words.Count(minSide, "certificate") + " tell"
	}
	return text + ", and then as before: no drift"
}

// sees says how small a change would have been found in what did not drift.
func (m *Machine) sees() string {
	var low, high *Series
	few := 0
	for i := range m.Series {
		s := &m.Series[i]
		switch {
		case len(s.Drifts) > 0 || s.Median == 0: // of zero nothing is a share
		case s.Seen == 0:
			few++
		default:
			if low == nil || s.Seen < low.Seen {
				low = s
			}
			if high == nil || s.Seen > high.Seen {
				high = s
			}
		}
	}
	text := ""
	switch {
	case low == nil && few == 0:
		return ""
	case low == nil && m.Certificates >= minPoints:
		return line("few", "%s: not even a change by half would be told from the noise: it takes more", words.Count(m.Certificates, "certificate"))
	case low == nil:
		return line("few", "%s: too few to tell a change from noise; it takes %d with the same figure, %d of them after the change", words.Count(m.Certificates, "certificate"), minPoints, minSide)
	case percent(low.Seen) == percent(high.Seen):
		text = fmt.Sprintf("of the rest no change larger than %s would have been missed", percent(low.Seen))
	default:
		text = fmt.Sprintf("of the rest no change larger than %s (%s) to %s (%s) would have been missed", percent(low.Seen), low.short(), percent(high.Seen), high.short())
	}
	text += fmt.Sprintf(", if it was there for %d certificates", min(soon, max(minSide, m.Certificates/2)))
	if few > 0 {
		text += fmt.Sprintf("; of %s not even one by half would have been seen", words.Count(few, "figure"))
	}
	return line("seen", "%s", text)
}

// together puts drifts into one group that have the same check, time and direction, as those of all
// pairs of a GPU have.
func together(all []Drift) (out [][]Drift) {
	for _, d := range all {
		i := slices.IndexFunc(out, func(o []Drift) bool {
			a := o[0]
			return a.Suite == d.Suite && a.Check == d.Check && a.Quantity == d.Quantity && a.Kind == d.Kind && a.All == 0 && d.All == 0 &&
				a.From.Equal(d.From) && a.To.Equal(d.To) && a.Change*d.Change > 0 && a.mark() == d.mark()
		})
		if i < 0 {
			out = append(out, []Drift{d})
			continue
		}
		out[i] = append(out[i], d)
	}
	return out
}

// short names a figure without UUIDs.
func (t Thing) short() string {
	t.ID, t.PeerID = "", ""
	return t.String()
}

// String names a figure.
func (t Thing) String() string {
	what := t.Check
	if t.Object != "" {
		what += ": " + t.Object
		if t.ID != "" {
			what += " (" + t.ID + ")"
		}
	}
	if t.Peer != "" {
		what += " to " + t.Peer
		if t.PeerID != "" {
			what += " (" + t.PeerID + ")"
		}
	}
	if t.Quantity != "" {
		what += " " + t.Quantity
	}
	return what
}

// String describes the drift in one sentence.
func (d Drift) String() string { return sentence([]Drift{d}) }

// sentence describes drifts that are together, the largest first.
func sentence(same []Drift) string {
	d := same[0]
	s := fmt.Sprintf("%s %s %s %s", subjectOf(same), d.verb(), d.by(), d.when())
	s += fmt.Sprintf(", from %s to %s %s", formatNumber(d.Before), formatNumber(d.After), d.Unit)
	if len(same) > 1 {
		s += " (the largest)"
	}
	if d.Kind != Compared && d.Peers > 0 {
		s += fmt.Sprintf(", beside %s", words.Count(d.Peers, "peer"))
	}
	noise := percent(ofValue(d.Noise, d.Before))
	if d.Before == 0 {
		noise = formatNumber(d.Noise) + " " + d.Unit
	}
	s += ", with a noise of ±" + noise
	if d.Until != nil {
		s += "; it was as before from " + stamp(*d.Until) + " on"
	}
	return s + with(d.With, "; then")
}

// with lists what changed.
func with(changes []Change, lead string) (s string) {
	for i, c := range changes {
		if i == 0 {
			s = lead
		} else {
			s += ","
		}
		s += fmt.Sprintf(" %s went from %s to %s", c.What, c.From, c.To)
	}
	return s
}

func (d *Drift) verb() string {
	if d.Change < 0 || d.Change == 0 && d.After < d.Before {
		return "fell"
	}
	return "rose"
}

func (d *Drift) by() string {
	if d.Before == 0 {
		return formatNumber(math.Abs(d.After)) + " " + d.Unit
	}
	return percent(math.Abs(d.Change))
}

func (d *Drift) when() string {
	how := "between"
	if d.Kind == Slope {
		how = "bit by bit between"
	}
	return fmt.Sprintf("%s %s and %s", how, stamp(d.From), stamp(d.To))
}

// subjectOf names what drifted together: a figure, all of a kind, or what the pairs of a thing have in
// common.
func subjectOf(same []Drift) string {
	d := same[0]
	if d.All > 0 {
		return fmt.Sprintf("%s: all %d %s", strings.TrimSpace(d.Check+" "+d.Quantity), d.All, d.Things)
	}
	if len(same) == 1 {
		return d.Thing.String()
	}
	title := strings.TrimSpace(d.Check + " " + d.Quantity)
	for _, name := range []string{d.Object, d.Peer} {
		if name != "" && d.Peer != "" && !slices.ContainsFunc(same, func(o Drift) bool { return o.Object != name && o.Peer != name }) {
			id := d.ID
			if name == d.Peer {
				id = d.PeerID
			}
			if id != "" {
				name += " (" + id + ")"
			}
			return fmt.Sprintf("%s: %s, in %d pairs,", title, name, len(same))
		}
	}
	var names []string
	for _, o := range same {
		names = append(names, strings.TrimPrefix(o.Thing.String(), o.Check+": "))
	}
	if n := len(names); n > 8 {
		names = append(names[:7], fmt.Sprintf("%d more", n-7))
	}
	return title + ": " + strings.Join(names, ", ")
}

// String describes the change in one sentence.
func (s Shared) String() string {
	mark, verb := "drift", "fell"
	if s.Better {
		mark = "better"
	}
	if s.Change > 0 {
		verb = "rose"
	}
	what := strings.TrimSpace(s.Check + " " + s.Quantity)
	if s.Things != "" {
		what += ": all " + s.Things
	}
	var got []string
	for _, c := range s.With {
		got = append(got, fmt.Sprintf("%s %s (was %s)", c.What, c.To, c.From))
	}
	return line(mark, "%s %s %s (%s to %s) on %d of the %s that got %s", what, verb, percent(math.Abs(s.Change)), signed(s.Low), signed(s.High), s.Machines,
		words.Count(s.Of, "machine"), strings.Join(got, ", "))
}

// String describes the offender in one sentence.
func (o Offender) String() string {
	who := cmp.Or(o.Object, "the machine")
	if o.ID != "" {
		who += " (" + o.ID + ")"
	}
	last, before := o.Faults[len(o.Faults)-1], o.Faults[len(o.Faults)-2]
	s := fmt.Sprintf("%s: %s failed %s %d times", o.Machine, who, o.Check, len(o.Faults))
	if before.Machine != last.Machine {
		s += fmt.Sprintf(", before on %s", before.Machine)
	}
	s += fmt.Sprintf(": until %s, passed at %s, again at %s", stamp(before.To), stamp(before.Passed), stamp(last.From))
	if last.Reason != "" {
		s += ": " + last.Reason
	}
	return line("again", "%s", s)
}
