package report

import "fmt"

// A plot is a picture of lines over an axis, with all its figures as a table.
type plot struct {
	Title, Alt     string
	W, H           int
	Left, Right    float64 // the field's corners
	Top, Bottom    float64
	XName, YName   string
	XTicks, YTicks []tick
	Lines          []line
	Rules          []rule
	Note           string // in place of the picture, or under it
	Drawn          bool
	Small          bool // one of many
	Scroll         bool // wider than a narrow window
	TableHead      []string
	TableRows      [][]string
}

// A line is one of a plot's, with a mark at each of its points.
type line struct {
	Name   string
	Class  string // "line-0": its colour and dashes
	Points string
	Marks  string // the path of its marks
	Mark   string // one of them, for the legend
}

// A rule is a level that is drawn across a plot.
type rule struct {
	Class string // "limit" or "expected"
	Text  string
	Y     float64
	TextY float64
}

// frame sets the corners of a plot's field.
func (p *plot) frame(w, h int, left, right, top, bottom float64) {
	p.W, p.H = w, h
	p.Left, p.Right, p.Top, p.Bottom = left, float64(w)-right, top, float64(h)-bottom
}

// shapes is how many marks and how many colours there are.
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
	case 4: // triangle on its head
		return fmt.Sprintf("M%.1f %.1fl%g %gh%gz", x, y+r, r, -2*r, -2*r)
	}
	return fmt.Sprintf("M%.1f %.1fh%gv%gh%gz", x-r, y-r/2, 2*r, r, -2*r) // bar
}

// addLine draws a line through points, with marks of its own.
func (p *plot) addLine(name string, class string, shape int, points [][2]float64) {
	l := line{Name: name, Class: class, Points: dots(points), Mark: markPath(shape, 17, 7)}
	for _, at := range points {
		l.Marks += markPath(shape, at[0], at[1])
	}
	p.Lines = append(p.Lines, l)
}

// addRule draws a level with its text over it, or under it at the upper edge or
// where another's text is.
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
