package mesh

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

//go:embed heatmap.html
var heatmap string

var page = template.Must(template.New("mesh").Parse(heatmap))

// A square is a cell of the heat map.
type square struct {
	X, Y  int
	Color string
	Bad   bool
	Title string
}

// A label names a row and a column.
type label struct {
	At    int
	Text  string
	Index int
}

// The dimensions of the heat map, in pixels.
const (
	squareSize = 18
	leftMargin = 220
	topMargin  = 30
)

// WriteHTML writes a self-contained page with the matrix as a heat map. It loads no external
// resources and runs no scripts.
func (r *Report) WriteHTML(w io.Writer, v View) error {
	var squares []square
	best := r.best()
	for i := range r.Cells {
		squares = append(squares, r.square(&r.Cells[i], best, v))
	}
	var labels []label
	for i := range r.Ports {
		labels = append(labels, label{i*squareSize + squareSize/2, r.Name(i), i})
	}
	unit, _ := r.unit(v)
	side := len(r.Ports) * squareSize
	typical := ""
	if r.Typical > 0 {
		typical = r.show(r.Typical, v)
	}
	var findings []string
	for _, f := range r.Findings {
		findings = append(findings, fmt.Sprintf("%s: %s", f.Verdict, f.Text))
	}
	return page.Execute(w, map[string]any{
		"Report": r, "Verdict": r.worst(), "Hosts": words.Count(len(r.Hosts), "host"), "Size": sizeText(r.Bytes), "How": r.how(), "Unit": unit, "Typical": typical,
		"Squares": squares, "Labels": labels, "Side": side, "Width": side + leftMargin + 10, "Height": side + topMargin + 10,
		"Left": leftMargin, "Top": topMargin, "Cell": squareSize - 1, "Findings": findings,
	})
}

// best is the best of all values, 0 if there is none.
func (r *Report) best() (best float64) {
	for i := range r.Cells {
		if v := r.Cells[i].Value; v > 0 && (best == 0 || r.limits().Better(v, best)) {
			best = v
		}
	}
	return best
}

func (r *Report) square(c *Cell, best float64, v View) square {
	unit, _ := r.unit(v)
	s := square{X: c.To * squareSize, Y: c.From * squareSize, Color: r.color(c, best), Bad: c.Verdict.Bad()}
	text := []string{r.Name(c.From) + " → " + r.Name(c.To)}
	if c.Value > 0 {
		text = append(text, r.show(c.Value, v)+" "+unit)
	}
	if c.Reason != "" {
		text = append(text, c.Reason)
	}
	for _, side := range []struct {
		port int
		ups  map[string]uint64
	}{{c.From, c.FromCounters}, {c.To, c.ToCounters}} {
		for _, name := range sortedKeys(side.ups) {
			text = append(text, fmt.Sprintf("%s: %s +%d", r.Name(side.port), name, side.ups[name]))
		}
	}
	s.Title = strings.Join(text, "\n")
	return s
}

// color is from red, at half of the best value or less, to green. A cell without a value is black.
func (r *Report) color(c *Cell, best float64) string {
	if c.Value == 0 || c.Error != "" {
		return "#000000"
	}
	part := c.Value / best
	if r.Latency {
		part = best / c.Value
	}
	hue := int(120 * min(max(2*part-1, 0), 1))
	return fmt.Sprintf("hsl(%d,70%%,50%%)", hue)
}
