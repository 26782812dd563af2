package report

import "fmt"

// A plot is a line chart, with all its figures also as a table.
type plot struct {
	Title, Alt     string
	W, H           int
	Left, Right    float64 // corners of the plot area
	Top, Bottom    float64
	XName, YName   string
	XTicks, YTicks []tick
	Lines          []line
	Rules          []rule
	Note           string // instead of the chart, or below it
	Drawn          bool
	Small          bool // one of many
	Scroll         bool // wider than a narrow window
	TableHead      []string
	TableRows      [][]string
}

// A line is one line of a plot, with a mark at each of its points.
type line struct {
	Name   string
	Class  string // "line-0": its colour and dash pattern
	Points string
	Marks  string // the path of all marks
	Mark   string // a single mark, for the legend
}

// A rule is a horizontal level across a plot.
type rule struct {
	Class string // "limit" or "expected"
	Text  string
	Y     float64
	TextY float64
}

// frame sets the corners of the plot area.
func (p *plot) frame(w, h int, left, right, top, bottom float64) {
	p.W, p.H = w, h
	p.Left, p.Right, p.Top, p.Bottom = left, float64(w)-right, top, float64(h)-bottom
}

// shapes is the number of marks, and of colours.
const shapes = 6

// markPath draws a mark of one of the shapes.
func markPath(shape int, x, y float64) string {
	const r = 3.5
	switch shape % shapes {
	case 0: // circle
		return fmt.Sprintf("M%.1f %.1fa%g %g 0 1 0 %g 0a%g %g 0 1 0 %g 0", x-r, y, r, r, 2*r, r, r, -2*r)
	case 1: // square
		return fmt.Sprintf("M%.1f %.1fh%gv%gh%gz", x-r, y-r, 2*r, 2*r, -2*r)
	case 2: // triangle
		return fmt.Sprintf("M%.1f %.1fl%g %gh%gz", x, y-r, r, 2*r, -2*r)
	case 3: // diamond
		return fmt.Sprintf("M%.1f %.1fl%g %gl%g %gl%g %gz", x, y-r-1, r+1, r+1, -r-1, r+1, -r-1, -r-1)
	case 4: // inverted triangle
		return fmt.Sprintf("M%.1f %.1fl%g %gh%gz", x, y+r, r, -2*r, -2*r)
	}
	return fmt.Sprintf("M%.1f %.1fh%gv%gh%gz", x-r, y-r/2, 2*r, r, -2*r) // bar
}

// addLine adds a line through points, with marks of the given shape.
func (p *plot) addLine(name string, class string, shape int, points [][2]float64) {
	l := line{Name: name, Class: class, Points: dots(points), Mark: markPath(shape, 17, 7)}
	for _, at := range points {
		l.Marks += markPath(shape, at[0], at[1])
	}
	p.Lines = append(p.Lines, l)
}

// addRule adds a level with its text above it, or below it at the upper edge or where another text
// is.
func (p *plot) addRule(class, text string, y float64) {
	r := rule{Class: class, Text: text, Y: y, TextY: y - 5}
	taken := func(at float64) bool {
		for _, o := range p.Rules {
			if at-o.TextY < 12 && o.TextY-at < 12 {
				return true
			}
		}
		return at < p.Top+8
	}
	if taken(r.TextY) {
		r.TextY = y + 13
	}
	p.Rules = append(p.Rules, r)
}
