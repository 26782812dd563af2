package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A layout is a drawing under construction: the tree of parts, and the position of each part.
type layout struct {
	t        *certificate.Topology
	worst    map[string]result.Verdict
	part     map[string]*certificate.Part
	children map[string][]string
	column   map[string]int
	boxes    map[string]*box
	order    []string // of the parts with boxes
	rows     int
	devices  int     // column of the devices, the last one of the tree
	left     float64 // space for links between NUMA nodes
	right    float64 // where links between devices may begin
}

// newLayout places the boxes. It returns nil if there are too many parts to be readable.
func newLayout(t *certificate.Topology, worst map[string]result.Verdict) *layout {
	if len(t.Parts) == 0 || len(t.Parts) > mostParts {
		return nil
	}
	l := &layout{t: t, worst: worst, part: map[string]*certificate.Part{}, children: map[string][]string{}, column: map[string]int{}, boxes: map[string]*box{}}
	for i := range t.Parts {
		p := &t.Parts[i]
		l.part[p.ID] = p
		if p.Under != "" {
			l.children[p.Under] = append(l.children[p.Under], p.ID)
			l.column[p.ID] = l.column[p.Under] + 1
		}
		l.devices = max(l.devices, l.column[p.ID])
	}
	for _, p := range t.Parts {
		if p.Kind == certificate.PartGPU || p.Kind == certificate.PartNIC {
			if len(l.children[p.ID]) == 0 {
				l.column[p.ID] = l.devices
			}
		}
	}
	if l.devices > mostDeep {
		return nil
	}
	l.left = margin + lanePitch*float64(len(l.inColumn(0)))
	for _, p := range t.Parts {
		if p.Under == "" && !l.isFabric(p) {
			l.grow(p.ID)
		}
	}
	l.right = l.x(l.devices) + boxWidth
	l.switches()
	return l
}

func (l *layout) x(column int) float64 { return l.left + columnPitch*float64(column) }

// grow places a part at the vertical centre of its children, each of which takes at least one row.
func (l *layout) grow(id string) (y float64) {
	var ys []float64
	for _, child := range l.children[id] {
		ys = append(ys, l.grow(child))
	}
	if len(ys) == 0 {
		ys = []float64{margin + rowPitch*float64(l.rows)}
		l.rows++
	}
	y = (ys[0] + ys[len(ys)-1]) / 2
	l.addBox(id, l.x(l.column[id]), y, boxHeight)
	return y
}

func (l *layout) addBox(id string, x, y, h float64) {
	p := l.part[id]
	text := p.Label
	if p.Kind == certificate.PartNIC {
		text = "NIC " + text
	}
	b := &box{Class: "part part-" + string(p.Kind), X: x, Y: y, W: boxWidth, H: h, TextX: x + boxWidth/2, TextY: y + h/2 + 4}
	if kindNames[p.Kind] == "" {
		b.Class = "part"
	}
	if v := l.worst[p.Label]; worthy(v) {
		b.Class += " " + string(v)
		text = marks[v].sign + " " + text
	}
	b.Text = shorten(text, boxChars)
	l.boxes[id] = b
	l.order = append(l.order, id)
}

// isFabric reports whether a part is an NVSwitch without children and without parent.
func (l *layout) isFabric(p certificate.Part) bool {
	return p.Kind == certificate.PartNVSwitch && p.Under == "" && len(l.children[p.ID]) == 0
}

// switches places NVSwitches to the right of all other parts, each as high as the parts it
// connects.
func (l *layout) switches() {
	n := 0
	for _, p := range l.t.Parts {
		if !l.isFabric(p) {
			continue
		}
		low, high := 0.0, 0.0
		for _, link := range l.t.Links {
			for _, ends := range [][2]string{{link.A, link.B}, {link.B, link.A}} {
				if b := l.boxes[ends[1]]; ends[0] == p.ID && b != nil {
					if low == 0 {
						low = b.Y
					}
					low, high = min(low, b.Y), max(high, b.Y)
				}
			}
		}
		if low == 0 { // it connects nothing
			low = margin + rowPitch*float64(l.rows)
			high = low
			l.rows++
		}
		l.addBox(p.ID, l.right+fabricGap+float64(n)*(boxWidth+margin), low, high-low+boxHeight)
		n++
	}
}

// inColumn returns the links between two parts of the same column.
func (l *layout) inColumn(column int) (out []certificate.Link) {
	for _, link := range l.t.Links {
		if l.column[link.A] == column && l.column[link.B] == column && link.A != link.B && !l.isFabric(*l.part[link.A]) && !l.isFabric(*l.part[link.B]) {
			out = append(out, link)
		}
	}
	return out
}

// draw adds the boxes and their edges.
func (l *layout) draw(d *drawing) {
	for _, id := range l.order {
		b := l.boxes[id]
		d.Boxes = append(d.Boxes, *b)
		d.Faulty = d.Faulty || worthy(l.worst[l.part[id].Label])
		if under := l.boxes[l.part[id].Under]; under != nil {
			d.Edges = append(d.Edges, plugged(under, b, l.part[id].Link))
		}
	}
	for _, link := range l.t.Links {
		if e, ok := l.across(link); ok {
			d.Edges = append(d.Edges, e)
		}
	}
	for column := 0; column <= l.devices; column++ {
		l.lanes(d, column)
	}
	w := l.right
	for _, b := range d.Boxes {
		w = max(w, b.X+b.W)
	}
	for _, e := range d.Edges {
		if e.Anchor == "start" {
			w = max(w, e.TextX+float64(7*len([]rune(e.Text))))
		}
	}
	d.W, d.H = int(w+margin), int(margin+rowPitch*float64(l.rows))
}

// plugged returns the edge from a part to its child. The text is above the last segment.
func plugged(under, b *box, text string) edge {
	x := under.X + under.W + 16
	return edge{
		Class: "pcie", Path: fmt.Sprintf("M%.0f %.1fH%.0fV%.1fH%.0f", under.X+under.W, under.middle(), x, b.middle(), b.X),
		Text: shorten(text, edgeChars), TextX: b.X - 6, TextY: b.middle() - 4, Anchor: "end",
	}
}

// across returns the edge for a link between two columns: to an NVSwitch, or next to the edge
// between a part and its child.
func (l *layout) across(link certificate.Link) (edge, bool) {
	a, b := l.boxes[link.A], l.boxes[link.B]
	if a == nil || b == nil || a.X == b.X {
		return edge{}, false
	}
	if a.X > b.X {
		a, b = b, a
	}
	y := a.middle()
	if (l.isFabric(*l.part[link.A]) || l.isFabric(*l.part[link.B])) && y >= b.Y && y <= b.Y+b.H {
		return edge{
			Class: "link", Path: fmt.Sprintf("M%.0f %.1fH%.0f", a.X+a.W, y, b.X), Text: shorten(linkText(link), boxChars+6),
			TextX: b.X - 6, TextY: y - 4, Anchor: "end",
		}, true
	}
	x, to := a.X+a.W+24, b.middle()+6
	return edge{
		Class: "link", Path: fmt.Sprintf("M%.0f %.1fH%.0fV%.1fH%.0f", a.X+a.W, y+6, x, to, b.X), Text: shorten(linkText(link), boxChars+6),
		TextX: b.X - 6, TextY: to + 12, Anchor: "end",
	}, true
}

// lanes draws the links within a column next to it: left of the first column, right of the others.
// Links that would overlap use separate lanes.
func (l *layout) lanes(d *drawing, column int) {
	links := l.inColumn(column)
	slices.SortStableFunc(links, func(a, b certificate.Link) int { return cmp.Compare(l.span(a), l.span(b)) })
	var free [][][2]float64
	var texts []float64
	for _, link := range links {
		a, b := l.boxes[link.A], l.boxes[link.B]
		low, high := min(a.middle(), b.middle()), max(a.middle(), b.middle())
		lane := slices.IndexFunc(free, func(taken [][2]float64) bool {
			return !slices.ContainsFunc(taken, func(s [2]float64) bool { return low <= s[1] && high >= s[0] })
		})
		if lane < 0 {
			lane = len(free)
			free = append(free, nil)
		}
		free[lane] = append(free[lane], [2]float64{low, high})
		from, x := a.X+a.W, a.X+a.W+lanePitch*float64(lane+1)
		if column == 0 && l.devices > 0 {
			from, x = a.X, a.X-lanePitch*float64(lane+1)
		}
		e := edge{Class: "link", Path: fmt.Sprintf("M%.0f %.1fH%.0fV%.1fH%.0f", from, low, x, high, from)}
		if y := (low + high) / 2; len(links) <= mostLanes && !slices.ContainsFunc(texts, func(t float64) bool { return t-y < 14 && y-t < 14 }) {
			texts = append(texts, y)
			e.Text, e.TextX, e.TextY, e.Anchor = linkText(link), x+6, y+4, "start"
		} else {
			d.Unnamed = true
		}
		d.Edges = append(d.Edges, e)
	}
}

// span is the vertical distance between the ends of a link.
func (l *layout) span(link certificate.Link) float64 {
	return max(l.boxes[link.A].Y, l.boxes[link.B].Y) - min(l.boxes[link.A].Y, l.boxes[link.B].Y)
}
