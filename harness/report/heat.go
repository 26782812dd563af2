package report

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/result"
)

// A heatMap shows a check's measurements between each pair of objects.
type heatMap struct {
	ID, Title string
	Of        string // the reference value for the colours
	Limit     string // common to all pairs
	Columns   []string
	Rows      []heatRow
	Scale     []heatStep
}

type heatRow struct {
	Name  string
	Cells []heatCell
}

// A heatCell is the cell of a pair; it is empty on the diagonal.
type heatCell struct {
	Class string // "heat heat-3"
	Sign  string // for verdicts other than pass
	Word  string
	Text  string
	None  bool // nothing was measured here
}

// A heatStep is one entry of the colour legend.
type heatStep struct {
	Class, Text string
}

// mostHeat is the largest number of rows or columns of a heat map. Beyond it only the list of
// objects is readable.
const mostHeat = 72

// heatBounds are the shares of the best value at which the colour changes.
var heatBounds = []float64{0.5, 0.7, 0.8, 0.9, 0.97}

// heatMaps returns a check's heat maps of pairs: one for each quantity and unit.
func heatMaps(r *result.Result) (out []heatMap) {
	type kind struct{ quantity, unit string }
	var order []kind
	by := map[kind][]result.Object{}
	for _, o := range r.Objects {
		if o.Peer == "" {
			continue
		}
		k := kind{o.Quantity, ""}
		if o.Measured != nil {
			k.unit = o.Measured.Unit
		} else if u := unitOfQuantity(r.Objects, o.Quantity); u != "" {
			k.unit = u
		}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], o)
	}
	for _, k := range order {
		if m, ok := heatOf(r.ID, by[k]); ok && k.unit != "" {
			m.Title = join(r.ID, k.quantity, k.unit)
			out = append(out, m)
		}
	}
	return out
}

// unitOfQuantity returns the unit of the pairs that were measured, for pairs that failed without a
// figure.
func unitOfQuantity(objects []result.Object, quantity string) string {
	for _, o := range objects {
		if o.Peer != "" && o.Quantity == quantity && o.Measured != nil {
			return o.Measured.Unit
		}
	}
	return ""
}

func heatOf(check string, pairs []result.Object) (heatMap, bool) {
	rows, columns := ends(pairs)
	if len(rows) > mostHeat || len(columns) > mostHeat {
		return heatMap{}, false
	}
	m := heatMap{Columns: columns, Scale: heatScale()}
	best, of := reference(check, pairs)
	m.Of = of
	_, m.Limit = valuesOf(pairs)
	cells := map[[2]string]result.Object{}
	for _, o := range pairs {
		cells[[2]string{o.Name, o.Peer}] = o
	}
	for _, from := range rows {
		row := heatRow{Name: from}
		for _, to := range columns {
			o, ok := cells[[2]string{from, to}]
			if !ok {
				row.Cells = append(row.Cells, heatCell{None: true})
				continue
			}
			row.Cells = append(row.Cells, heatCellOf(check, o, best))
		}
		m.Rows = append(m.Rows, row)
	}
	return m, true
}

// ends returns the objects on both sides: the same list for both if the sides have objects in
// common.
func ends(pairs []result.Object) (rows, columns []string) {
	seen := map[string]bool{}
	add := func(list *[]string, side, name string) {
		if !seen[side+name] {
			seen[side+name] = true
			*list = append(*list, name)
		}
	}
	var both []string
	for _, o := range pairs {
		add(&rows, "from ", o.Name)
		add(&both, "both ", o.Name)
	}
	for _, o := range pairs {
		add(&columns, "to ", o.Peer)
		add(&both, "both ", o.Peer)
	}
	if len(both) < len(rows)+len(columns) {
		return both, both
	}
	return rows, columns
}

// reference returns the value that colours are relative to: the best measured one, so that pairs
// behind the others are visible. The verdicts say whether a value is good enough.
func reference(check string, pairs []result.Object) (float64, string) {
	var values []float64
	lower := false
	for _, o := range pairs {
		if o.Measured != nil {
			values = append(values, o.Measured.Value)
			lower = lowerBetter(check, o)
		}
	}
	if len(values) == 0 {
		return 0, ""
	}
	best := slices.Max(values)
	if lower {
		best = slices.Min(values)
	}
	return best, fmt.Sprintf("the best, %.4g", best)
}

// lowerBetter reports whether lower values of an object's measurement are better.
func lowerBetter(check string, o result.Object) bool {
	return result.BetterOf(check, o.Quantity, o.Measured.Unit, o.Measured.LimitKind()) == result.Lower
}

func heatCellOf(check string, o result.Object, best float64) heatCell {
	c := heatCell{Class: "heat"}
	if o.Verdict != result.Pass {
		c.Sign, c.Word = marks[o.Verdict].sign, outcomes[o.Verdict]
	}
	if o.Measured == nil {
		return c
	}
	c.Text = fmt.Sprintf("%.4g", o.Measured.Value)
	if o.Measured.Value <= 0 || best <= 0 {
		return c
	}
	part := o.Measured.Value / best
	if lowerBetter(check, o) {
		part = 1 / part
	}
	c.Class = heatClass(part)
	return c
}

// heatClass returns the colour class for a share of the best value.
func heatClass(part float64) string {
	step := 0
	for _, bound := range heatBounds {
		if part >= bound {
			step++
		}
	}
	return fmt.Sprintf("heat heat-%d", step)
}

// heatScale returns the colour legend.
func heatScale() (out []heatStep) {
	for i, bound := range heatBounds {
		text := fmt.Sprintf("from %.0f %%", 100*bound)
		if i == 0 {
			out = append(out, heatStep{heatClass(0), fmt.Sprintf("below %.0f %%", 100*bound)})
		}
		if i+1 < len(heatBounds) {
			text += fmt.Sprintf(" to %.0f %%", 100*heatBounds[i+1])
		}
		out = append(out, heatStep{heatClass(bound), text})
	}
	return out
}
