package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/internal/hostlist"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// fleetHeadline says what stands out: the first line of each format.
func fleetHeadline(f *fleet.Fleet) string {
	n := len(f.Nodes)
	if len(f.Outliers) > 0 {
		o := f.Outliers[0]
		first := fmt.Sprintf("%s, %s %s", o.Node, f.Figures[o.Deviations[0].Figure].Check, changeText(f, o.Deviations[0].Figure, o.Deviations[0].Change))
		if len(f.Outliers) == 1 {
			return fmt.Sprintf("1 of %d nodes stands out: %s", n, first)
		}
		return fmt.Sprintf("%d of %d nodes stand out, most of all %s", len(f.Outliers), n, first)
	}
	if !slices.ContainsFunc(f.Kinds, func(k fleet.Kind) bool { return k.Compared }) {
		return fmt.Sprintf("%s, too few of a kind to compare (%d)", words.Count(n, "node"), fleet.MinPeers)
	}
	if len(f.Groups) > 0 {
		return fmt.Sprintf("None of %d nodes stands out; %s", n, shorten(groupSentence(f, &f.Groups[0]), 120))
	}
	return fmt.Sprintf("None of %d nodes stands out from its peers", n)
}

// fleetSummary counts nodes by verdict and coverage.
func fleetSummary(f *fleet.Fleet) string {
	c := &f.Coverage
	var parts []string
	for _, v := range []result.Verdict{result.Pass, result.Fail, result.Error, result.Skip} {
		if n := c.Verdicts[string(v)]; n > 0 || v == result.Pass {
			parts = append(parts, fmt.Sprintf("%d %s", n, map[result.Verdict]string{result.Pass: "passed", result.Fail: "failed", result.Error: "could not run", result.Skip: "skipped all"}[v]))
		}
	}
	for _, p := range []struct {
		n    int
		what string
	}{{len(c.Missing) + len(c.Lost), "not certified"}, {len(c.Old), "old"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	out := words.Count(len(f.Nodes), "node") + ": " + strings.Join(parts, ", ") + "; " + words.Count(f.Certificates, "certificate")
	if f.Refused > 0 {
		out += fmt.Sprintf(", %d refused", f.Refused)
	}
	return out
}

// changeText formats a change of a figure: "-12.1 %", or in its unit.
func changeText(f *fleet.Fleet, figure int, change float64) string {
	if g := &f.Figures[figure]; g.Absolute {
		return fmt.Sprintf("%+.3g %s", change, g.Unit)
	}
	return fmt.Sprintf("%+.3g %%", 100*change)
}

// deviationObject names what deviates: "GPU 2 → GPU 5 and 6 more".
func deviationObject(d *fleet.Deviation) string {
	name := d.Object
	if d.Peer != "" {
		name += " → " + d.Peer
	}
	if d.Others > 0 {
		name += fmt.Sprintf(" and %d more", d.Others)
	}
	return name
}

// deviationText says how far a value is from those of the peers.
func deviationText(f *fleet.Fleet, d *fleet.Deviation, peers int) string {
	g := &f.Figures[d.Figure]
	return fmt.Sprintf("%s, %s beside %s of %s", figure(d.Value, g.Unit), changeText(f, d.Figure, d.Change), figure(d.Median, g.Unit), words.Count(peers, "peer"))
}

// groupSentence says in what a group differs.
func groupSentence(f *fleet.Fleet, g *fleet.Group) string {
	c := g.Figures[0]
	unit := f.Figures[c.Figure].Unit
	way := "differ by"
	if f.Figures[c.Figure].Better != result.Unknown {
		way = "are better by"
		if c.Worse {
			way = "are worse by"
		}
	}
	size := strings.TrimLeft(changeText(f, c.Figure, c.Change), "+-")
	with := ", which no recorded version explains,"
	if g.What != "" {
		with = " with " + g.What + " " + cmp.Or(g.Value, "not set")
	}
	s := fmt.Sprintf("%s%s %s %s in %s (median %s; of the other %d %s)", words.Count(len(g.Nodes), "node"), with, way, size, f.Figures[c.Figure].Name(), figure(c.Median, unit), g.Against, figure(c.Peers, unit))
	switch n := len(g.Figures) - 1; {
	case n == 1:
		s += ", and in one more figure"
	case n > 1:
		s += fmt.Sprintf(", and in %d more figures", n)
	}
	return s
}

// ageText formats an age: "3 h", "12 days".
func ageText(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d < 90*time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	default:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	}
}

// coverageFacts lists who has certificates and who has not.
func coverageFacts(f *fleet.Fleet) []fact {
	c := &f.Coverage
	var out factList
	nodes := func(name string, list []string) {
		if len(list) > 0 {
			out.add(name, fmt.Sprintf("%d: %s", len(list), hostlist.Compress(list)))
		}
	}
	if c.Expected > 0 {
		out.add("expected", fmt.Sprintf("%s, %d of them certified", words.Count(c.Expected, "node"), c.Expected-len(c.Missing)))
	}
	nodes("not certified", c.Missing)
	nodes("not expected", c.Unexpected)
	for _, l := range c.Lost {
		out.add("lost", l.Node+": "+l.Reason)
	}
	nodes("could not run", c.NotRun)
	if c.MaxAge > 0 {
		nodes("older than "+ageText(c.MaxAge), c.Old)
	}
	if c.OldestNode != "" {
		out.add("ages", fmt.Sprintf("%s to %s (%s)", ageText(c.Youngest), ageText(c.Oldest), c.OldestNode))
	}
	for _, s := range c.Suites {
		text := words.Count(s.Nodes, "node")
		if len(s.Without) > 0 {
			text += "; not of " + hostlist.Compress(s.Without)
		}
		out.add("suite "+s.Suite, text)
	}
	for _, s := range c.Shared {
		out.add("one identity", hostlist.Compress(s.Nodes)+": renamed, or a cloned machine-id")
	}
	for _, k := range f.Kinds {
		text := words.Count(k.Nodes, "node")
		if !k.Compared {
			text += fmt.Sprintf(", too few to compare (%d)", fleet.MinPeers)
		}
		out.add(k.Name, text)
	}
	return out
}

// A minority is the values of a version that most machines of the kind do not have.
type minority struct {
	What, Most string
	Values     []minorityValue
	Left       int // values that are not listed
}

type minorityValue struct {
	Value, Nodes string
	N            int
}

// minorities lists versions that differ. Facts with a value for nearly each machine are left out:
// they are names.
func minorities(f *fleet.Fleet, most int) (out []minority) {
	for _, v := range f.Versions {
		if nodes := f.Kinds[v.Kind].Nodes; 2*len(v.Values) > nodes && nodes > 2 {
			continue
		}
		m := minority{What: v.What, Most: fmt.Sprintf("%s: %d", cmp.Or(v.Values[0].Value, "none"), len(v.Values[0].Nodes))}
		if len(f.Kinds) > 1 {
			m.What += ", " + f.Kinds[v.Kind].Name
		}
		for i, x := range v.Values[1:] {
			if i == most {
				m.Left = len(v.Values) - 1 - most
				break
			}
			m.Values = append(m.Values, minorityValue{cmp.Or(x.Value, "none"), hostlist.Compress(x.Nodes), len(x.Nodes)})
		}
		out = append(out, m)
	}
	return out
}

// blocks draws numbers from 0 up as characters.
func blocks(values []float64) string {
	const levels = "▁▂▃▄▅▆▇█"
	most := slices.Max(values)
	var b strings.Builder
	for _, v := range values {
		k := 0
		if most > 0 {
			k = min(int(math.Ceil(7*v/most)), 7)
		}
		b.WriteRune([]rune(levels)[k])
	}
	return b.String()
}

// distributionText draws where a value lies among those of the fleet: ◆.
func distributionText(g *fleet.Figure, value float64) string {
	own := -1
	switch {
	case value >= g.Least && value <= g.Largest && g.Largest > g.Least:
		own = min(int(float64(len(g.Histogram))*(value-g.Least)/(g.Largest-g.Least)), len(g.Histogram)-1)
	case value > g.Largest:
		own = len(g.Histogram)
	}
	var b strings.Builder
	if own < 0 {
		b.WriteString("◆ ")
	}
	var counts []float64
	for _, n := range g.Histogram {
		counts = append(counts, float64(n))
	}
	for i, r := range []rune(blocks(counts)) {
		switch {
		case i == own:
			b.WriteRune('◆')
		case g.Histogram[i] == 0:
			b.WriteRune('·')
		default:
			b.WriteRune(r)
		}
	}
	if own == len(g.Histogram) {
		b.WriteString(" ◆")
	}
	return b.String()
}

// sparkText draws values over time, from 0 unless they differ by little.
func sparkText(over []fleet.Point) string {
	low, high := over[0].Value, over[0].Value
	for _, p := range over {
		low, high = min(low, p.Value), max(high, p.Value)
	}
	from := low - (high-low)/3
	var values []float64
	for _, p := range over[max(0, len(over)-24):] {
		values = append(values, p.Value-from)
	}
	return blocks(values)
}
