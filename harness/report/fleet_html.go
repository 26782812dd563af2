package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/fleet"
	"github.com/assay-hpc/assay/internal/hostlist"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// How many of each thing a page has.
const (
	pageOutliers = 24 // with all that is known; the others are rows of a table
	pageHot      = 48 // nodes and figures of the heat map with values
	pageDots     = 1200
)

// FleetHTML writes a fleet as a self-contained page, which loads nothing and needs no script.
func FleetHTML(w io.Writer, f *fleet.Fleet) error {
	f = clean(f)
	v := fleetView{Title: fleetHeadline(f), Summary: fleetSummary(f), When: f.At.Format(time.RFC3339), Coverage: coverageFacts(f), Versions: minorities(f, 12)}
	for i := range f.Outliers {
		if i < pageOutliers {
			v.Outliers = append(v.Outliers, outlierView(f, &f.Outliers[i]))
		} else {
			v.More = append(v.More, deviationRows(f, f.Outliers[i].Node, f.Outliers[i].Deviations[:1])...)
		}
	}
	for i := range f.Groups {
		v.Groups = append(v.Groups, groupOf(f, &f.Groups[i]))
	}
	for _, x := range f.Failures {
		v.Failures = append(v.Failures, failureRow{x, marks[x.Verdict].sign, outcomes[x.Verdict], len(x.Nodes), hostlist.Compress(x.Nodes)})
	}
	v.Hot, v.Columns = hottest(f)
	v.Map = wholeFleet(f)
	for i := range f.Figures {
		v.Figures = append(v.Figures, figureRow(f, &f.Figures[i]))
	}
	for i := range f.Nodes {
		v.Nodes = append(v.Nodes, nodeRow(f, &f.Nodes[i]))
	}
	return pages.ExecuteTemplate(w, "fleet.html", v)
}

type fleetView struct {
	Title, Summary, When string
	Outliers             []outlierSection
	More                 []deviationRow
	Groups               []groupSection
	Failures             []failureRow
	Hot                  []hotRow
	Columns              []string
	Map                  *fleetMap
	Versions             []minority
	Coverage             []fact
	Figures              []figureLine
	Nodes                []nodeLine
}

type outlierSection struct {
	Node, Figure, Change, Said string
	Distribution, Spark        *sketch
	Causes                     []string
	Remedy                     string
	Rest                       []deviationRow
}

type deviationRow struct{ Node, Figure, Object, Value, Change, Peers, Of string }

// A sketch is a small drawing without axes.
type sketch struct {
	Alt        string
	W, H       int
	Path, Mark string
}

func outlierView(f *fleet.Fleet, o *fleet.Outlier) outlierSection {
	d := &o.Deviations[0]
	g := &f.Figures[d.Figure]
	s := outlierSection{
		Node: o.Node, Figure: strings.TrimSpace(g.Name() + " " + deviationObject(d)), Change: changeText(f, d.Figure, d.Change), Said: deviationText(f, d, o.Peers),
		Distribution: distribution(g, d.Value), Causes: o.Causes, Remedy: o.Remedy, Rest: deviationRows(f, "", o.Deviations[1:]),
	}
	if d.Over != nil {
		s.Spark = spark(g, d.Over)
	}
	return s
}

func deviationRows(f *fleet.Fleet, node string, all []fleet.Deviation) (out []deviationRow) {
	for i := range all {
		d := &all[i]
		g := &f.Figures[d.Figure]
		out = append(out, deviationRow{node, g.Name(), deviationObject(d), figure(d.Value, g.Unit), changeText(f, d.Figure, d.Change), figure(d.Median, g.Unit), fmt.Sprintf("%.2g", d.Of)})
	}
	return out
}

// distribution draws a figure's histogram with a mark at a value.
func distribution(g *fleet.Figure, value float64) *sketch {
	const width, height, margin = 240.0, 48.0, 6.0
	low, high := min(g.Least, value), max(g.Largest, value)
	if high <= low {
		high = low + 1
	}
	x := func(v float64) float64 { return margin + (width-2*margin)*(v-low)/(high-low) }
	s := &sketch{W: width, H: height, Alt: fmt.Sprintf("the value %s among those of %s from %s", figure(value, g.Unit), words.Count(g.Nodes, "node"), span(g.Least, g.Largest, g.Unit))}
	most := slices.Max(g.Histogram)
	step := (g.Largest - g.Least) / float64(len(g.Histogram))
	var b strings.Builder
	for i, n := range g.Histogram {
		if n > 0 {
			from, to := x(g.Least+float64(i)*step), x(g.Least+float64(i+1)*step)
			h := max(1.5, (height-10)*float64(n)/float64(most))
			fmt.Fprintf(&b, "M%.1f %.1fh%.1fv%.1fh%.1fz", from, height-2-h, max(to-from-0.5, 1), h, -max(to-from-0.5, 1))
		}
	}
	s.Path, s.Mark = b.String(), fmt.Sprintf("M%.1f %.1fl-4 -7h8z M%.1f 9V%.1f", x(value), 8.0, x(value), height-2)
	return s
}

// spark draws values over time.
func spark(g *fleet.Figure, over []fleet.Point) *sketch {
	const width, height, margin = 160.0, 48.0, 5.0
	low, high := over[0].Value, over[0].Value
	for _, p := range over {
		low, high = min(low, p.Value), max(high, p.Value)
	}
	first, last := over[0], over[len(over)-1]
	s := &sketch{W: width, H: height, Alt: fmt.Sprintf("over time: %s on %s, %s on %s", figure(first.Value, g.Unit), first.At.Format(time.DateOnly), figure(last.Value, g.Unit), last.At.Format(time.DateOnly))}
	long := last.At.Sub(first.At).Seconds()
	var b strings.Builder
	for i, p := range over {
		x, y := width/2, height/2
		if long > 0 {
			x = margin + (width-2*margin)*p.At.Sub(first.At).Seconds()/long
		}
		if high > low {
			y = height - margin - (height-2*margin)*(p.Value-low)/(high-low)
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x, y)
		if i == len(over)-1 {
			s.Mark = markPath(0, x, y)
		}
	}
	s.Path = b.String()
	return s
}

type groupSection struct {
	Said, Nodes string
	Also        []string
	Rows        []deviationRow
	Worse       bool
}

func groupOf(f *fleet.Fleet, g *fleet.Group) groupSection {
	s := groupSection{Said: groupSentence(f, g), Nodes: hostlist.Compress(g.Nodes), Also: g.Also}
	for _, c := range g.Figures {
		x := &f.Figures[c.Figure]
		s.Worse = s.Worse || c.Worse
		s.Rows = append(s.Rows, deviationRow{Figure: x.Name(), Value: figure(c.Median, x.Unit), Change: changeText(f, c.Figure, c.Change), Peers: figure(c.Peers, x.Unit)})
	}
	return s
}

type failureRow struct {
	fleet.Failure
	Sign, Word string
	N          int
	List       string
}

// A hotRow is a node of the heat map with values.
type hotRow struct {
	Name  string
	Cells []hotCell
}

type hotCell struct{ Class, Text string }

// hotClass returns the colour of a distance, in parts of the threshold.
func hotClass(of float64) string {
	switch {
	case of >= 2:
		return "heat-0"
	case of >= 1:
		return "heat-1"
	case of >= 0.75:
		return "heat-2"
	case of >= 0.5:
		return "heat-3"
	case of <= -0.5:
		return "heat-5"
	}
	return "heat-4"
}

// hottest returns the nodes that lie farthest from their peers, with the figures in which they do.
func hottest(f *fleet.Fleet) (rows []hotRow, columns []string) {
	worst := func(n *fleet.Node) (most float64) {
		for _, d := range n.Distances {
			most = max(most, d.Of)
		}
		return most
	}
	var nodes []*fleet.Node
	for i := range f.Nodes {
		if worst(&f.Nodes[i]) >= 0.75 {
			nodes = append(nodes, &f.Nodes[i])
		}
	}
	slices.SortStableFunc(nodes, func(a, b *fleet.Node) int { return cmp.Compare(worst(b), worst(a)) })
	nodes = nodes[:min(len(nodes), pageHot)]
	heat := map[int]float64{}
	for _, n := range nodes {
		for _, d := range n.Distances {
			heat[d.Figure] = max(heat[d.Figure], math.Abs(d.Of))
		}
	}
	var figures []int
	for i := range f.Figures {
		if heat[i] > 0 {
			figures = append(figures, i)
		}
	}
	slices.SortStableFunc(figures, func(a, b int) int { return cmp.Compare(heat[b], heat[a]) })
	figures = figures[:min(len(figures), pageHot)]
	slices.Sort(figures)
	at := map[int]int{}
	for i, x := range figures {
		at[x] = i
		columns = append(columns, f.Figures[x].Name())
	}
	for _, n := range nodes {
		row := hotRow{n.Name, make([]hotCell, len(figures))}
		for _, d := range n.Distances {
			if i, ok := at[d.Figure]; ok {
				row.Cells[i] = hotCell{hotClass(d.Of), fmt.Sprintf("%.1f", d.Of)}
			}
		}
		rows = append(rows, row)
	}
	return rows, columns
}

// A fleetMap is a drawing of all nodes and figures: a square for each that lies apart.
type fleetMap struct {
	Alt    string
	W, H   int
	Left   float64
	Rows   []tick // figures
	Ticks  []tick // nodes
	Layers []mapLayer
	Base   float64
	Right  float64
}

type mapLayer struct{ Class, Path string }

// wholeFleet draws the nodes from left to right, and the figures from top to bottom.
func wholeFleet(f *fleet.Fleet) *fleetMap {
	var figures []int
	heat := map[int]bool{}
	for i := range f.Nodes {
		for _, d := range f.Nodes[i].Distances {
			heat[d.Figure] = true
		}
	}
	names := map[string]int{} // the same figure of several kinds and suites has one row
	m := &fleetMap{Left: 300}
	for i := range f.Figures {
		if heat[i] {
			figures = append(figures, i)
		}
	}
	const high = 13
	for _, i := range figures {
		name := f.Figures[i].Name()
		if _, ok := names[name]; !ok {
			names[name] = len(names)
			m.Rows = append(m.Rows, tick{float64(len(names)*high - 3), shorten(name, 44)})
		}
	}
	if len(names) == 0 {
		return nil
	}
	wide := min(max(pageDots/float64(len(f.Nodes)), 1.2), 14)
	m.Base = float64(len(names) * high)
	m.Right = m.Left + wide*float64(len(f.Nodes))
	m.W, m.H = int(m.Right)+60, len(names)*high+24
	paths := map[string]*strings.Builder{}
	for i := range f.Nodes {
		for _, d := range f.Nodes[i].Distances {
			class := hotClass(d.Of)
			if paths[class] == nil {
				paths[class] = &strings.Builder{}
			}
			y := names[f.Figures[d.Figure].Name()] * high
			fmt.Fprintf(paths[class], "M%.1f %dh%.1fv%dh%.1fz", m.Left+wide*float64(i), y+1, max(wide, 2), high-2, -max(wide, 2))
		}
	}
	for _, class := range []string{"heat-5", "heat-3", "heat-2", "heat-1", "heat-0"} {
		if paths[class] != nil {
			m.Layers = append(m.Layers, mapLayer{class, paths[class].String()})
		}
	}
	every := max(1, int(math.Ceil(110/wide)))
	for i := 0; i < len(f.Nodes); i += every {
		m.Ticks = append(m.Ticks, tick{m.Left + wide*float64(i), shorten(f.Nodes[i].Name, 14)})
	}
	m.Alt = fmt.Sprintf("%s from left to right, %s from top to bottom; the table above has the nodes that lie apart", words.Count(len(f.Nodes), "node"), words.Count(len(names), "figure"))
	return m
}

type figureLine struct{ Name, Kind, N, Median, Range, Noise, Threshold string }

func figureRow(f *fleet.Fleet, g *fleet.Figure) figureLine {
	part := func(v float64) string {
		if g.Absolute {
			return figure(v, g.Unit)
		}
		return fmt.Sprintf("%.2g %%", 100*v)
	}
	return figureLine{g.Name() + ", suite " + g.Suite, f.Kinds[g.Kind].Name, fmt.Sprint(g.Nodes), figure(g.Median, g.Unit), span(g.Low, g.High, g.Unit), part(g.Noise), part(g.Threshold)}
}

type nodeLine struct {
	Name, Sign, Word, Suites string
	Verdict                  result.Verdict
}

func nodeRow(f *fleet.Fleet, n *fleet.Node) nodeLine {
	var suites []string
	for _, s := range n.Suites {
		suites = append(suites, fmt.Sprintf("%s %s, %s old", s.Suite, outcomes[s.Verdict], ageText(f.At.Sub(s.Finished).Seconds())))
	}
	return nodeLine{n.Name, marks[n.Verdict].sign, outcomes[n.Verdict], strings.Join(suites, "; "), n.Verdict}
}
