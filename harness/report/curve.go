package report

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/result"
)

// curvePlots draws a check's curves: one plot for all curves with the same units.
func curvePlots(r *result.Result) (out []plot) {
	type units struct{ x, y string }
	var order []units
	by := map[units][]result.Curve{}
	for _, c := range r.Curves {
		u := units{c.X, c.Y}
		if by[u] == nil {
			order = append(order, u)
		}
		by[u] = append(by[u], c)
	}
	for _, u := range order {
		out = append(out, curvePlot(r.ID, by[u]))
	}
	return out
}

func curvePlot(title string, curves []result.Curve) plot {
	p := plot{Title: title, XName: unitOf(curves[0].X), YName: curves[0].Y, Scroll: true}
	var xs, ys []float64
	for _, c := range curves {
		for _, at := range c.Points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
		}
		ys = append(ys, c.Expected)
		p.Alt += curveText(c) + ". "
	}
	p.curveTable(curves)
	if !drawable(xs) || !drawable(ys) {
		p.Note = "Such figures cannot be drawn; the table has them."
		return p
	}
	p.Drawn = true
	p.frame(640, 320, 64, 16, 20, 44)
	low, high := slices.Min(xs), slices.Max(xs)
	x := rounded(low, high, p.Left, p.Right, 6)
	if low > 0 {
		x = logarithmic(low, high, p.Left, p.Right, curves[0].X, 8)
	}
	y := fromZero(ys, p.Bottom, p.Top, 6)
	p.XTicks, p.YTicks = x.ticks, y.ticks
	ruled := map[string]bool{}
	for i, c := range curves {
		var points [][2]float64
		for _, at := range c.Points {
			points = append(points, [2]float64{x.at(at.X), y.at(at.Y)})
		}
		p.addLine(c.Name, fmt.Sprintf("line-%d", i%shapes), i+i/shapes, points)
		text := fmt.Sprintf("expected at the largest: %s (%s)", figure(c.Expected, c.Y), c.Source)
		if c.Expected != 0 && !ruled[text] {
			ruled[text] = true
			p.addRule("expected", shorten(text, 70), y.at(c.Expected))
		}
	}
	return p
}

// curveText describes a curve in a sentence.
func curveText(c result.Curve) string {
	best := slices.MaxFunc(c.Points, func(a, b result.Point) int {
		if a.Y < b.Y {
			return -1
		}
		return 1
	})
	last := c.Points[len(c.Points)-1]
	s := fmt.Sprintf("%s: most %s at %s, %s at the largest, %s", c.Name, figure(best.Y, c.Y), xText(best.X, c.X), figure(last.Y, c.Y), xText(last.X, c.X))
	if c.Expected != 0 {
		s += fmt.Sprintf("; expected there: %s (%s)", figure(c.Expected, c.Y), c.Source)
	}
	return s
}

func xText(v float64, unit string) string {
	if unit == "B" {
		return bytesText(v)
	}
	return figure(v, unit)
}

// curveTable sets a row for each x value of any curve.
func (p *plot) curveTable(curves []result.Curve) {
	p.TableHead = []string{p.XName}
	at := map[float64][]string{}
	var xs []float64
	for i, c := range curves {
		p.TableHead = append(p.TableHead, c.Name+", "+c.Y)
		for _, pt := range c.Points {
			if at[pt.X] == nil {
				at[pt.X] = make([]string, len(curves))
				xs = append(xs, pt.X)
			}
			at[pt.X][i] = fmt.Sprintf("%.4g", pt.Y)
		}
	}
	slices.Sort(xs)
	for _, x := range xs {
		p.TableRows = append(p.TableRows, append([]string{xText(x, curves[0].X)}, at[x]...))
	}
}
