package membw

import (
	"cmp"
	"fmt"
	"slices"
)

// Verdict is what a measurement is worth.
type Verdict string

// The verdicts, from good to bad. NotApplicable counts as nothing.
const (
	NotApplicable Verdict = "n/a"
	Pass          Verdict = "pass"
	Warn          Verdict = "warn"
	Fail          Verdict = "fail"
)

var severity = []Verdict{NotApplicable, "", Pass, Warn, Fail}

// worse is the worse of two.
func (v Verdict) worse(o Verdict) Verdict {
	if slices.Index(severity, o) > slices.Index(severity, v) {
		return o
	}
	return v
}

func (v Verdict) bad() bool { return v == Warn || v == Fail }

// Limits are where verdicts change. Pass and Fail are fractions of the reference:
// from Pass on a cell passes, below Fail it fails, and between it gets a warning.
// MedianWarn and MedianFail are fractions of the median of the family's cells, of
// which there must be three: a cell that is far behind the others is suspect
// whatever the reference. With Lower, less is better, and they are multiples.
type Limits struct {
	Pass       float64 `json:"pass,omitempty"`
	Fail       float64 `json:"fail,omitempty"`
	MedianWarn float64 `json:"median_warn"`
	MedianFail float64 `json:"median_fail"`
	Lower      bool    `json:"lower,omitempty"`
}

// The limits, by what healthy nodes are known to reach (harness/platform has the
// figures and sources; docs/bandwidth.md has the list).
var (
	// PCIe 5: 55 of 63 GB/s, 0.87; Azure's floor is 48, 0.76. PCIe 4: 24 to 26 of 31.
	hostLimits = Limits{Pass: 0.76, Fail: 0.66, MedianWarn: 0.93, MedianFail: 0.75}
	// GPUs may share an uplink by design: no failure by itself.
	contentionLimits = Limits{Pass: 0.7, MedianWarn: 0.8, MedianFail: 0.5}
	// H200 2081 of 2400, 0.87; A100 790 of 1000, 0.79; H100 1260 of 1675, 0.75.
	localLimits = Limits{Pass: 0.72, Fail: 0.62, MedianWarn: 0.95, MedianFail: 0.85}
	// H200 396 of 450, 0.88; A100 276 of 300, 0.92; GB200 746 of 900, 0.83; Azure's
	// floors are 335 of 450, 0.74, and 235 of 300, 0.78.
	peerLimits = Limits{Pass: 0.80, Fail: 0.72, MedianWarn: 0.95, MedianFail: 0.85}
	// Peers without NVLink: switches and processors between them pass less on
	// than a slot takes, and how much differs.
	pciePeerLimits = Limits{Pass: 0.6, Fail: 0.4, MedianWarn: 0.8, MedianFail: 0.5}
	// H200 366 to 376 of 450, 0.81 to 0.84.
	kernelLimits = Limits{Pass: 0.75, Fail: 0.67, MedianWarn: 0.93, MedianFail: 0.85}
	// Nobody publishes what it should be; another socket's memory is farther away.
	latencyLimits = Limits{MedianWarn: 1.5, MedianFail: 3, Lower: true}
)

// judge gives the cells their verdicts.
func (f *Family) judge() {
	var values []float64
	for _, c := range f.Cells {
		if c.Value > 0 {
			values = append(values, c.Value)
		}
	}
	for i := range f.Cells {
		c, limits := &f.Cells[i], f.Limits
		if c.Limits != nil {
			limits = *c.Limits
		}
		if c.Samples == nil {
			c.Samples = []float64{} // a list in JSON, too
		}
		if c.Verdict == "" {
			c.Verdict, c.Reason = limits.judge(c, f.Unit, values)
		}
	}
}

// judge holds a cell against its reference and the family's values.
func (l Limits) judge(c *Cell, unit string, values []float64) (Verdict, string) {
	v, why := Pass, ""
	note := func(got Verdict, format string, args ...any) {
		if v.worse(got) != v {
			v, why = got, fmt.Sprintf(format, args...)
		}
	}
	if c.Reference > 0 {
		c.Efficiency = c.Value / c.Reference
		text := func(limit float64) string {
			return fmt.Sprintf("%.1f %s is %.0f %% of %.1f; %.0f %% or more is expected", c.Value, unit, 100*c.Efficiency, c.Reference, 100*limit)
		}
		switch {
		case c.Efficiency < l.Fail:
			note(Fail, "%s", text(l.Pass))
		case c.Efficiency < l.Pass:
			note(Warn, "%s", text(l.Pass))
		}
	}
	if len(values) < 3 {
		return v, why
	}
	middle := median(values)
	ratio := c.Value / middle
	beyond := func(limit float64) bool { return limit > 0 && (l.Lower && ratio > limit || !l.Lower && ratio < limit) }
	switch {
	case beyond(l.MedianFail):
		note(Fail, "%.1f %s is %.2f times the median of all, %.1f", c.Value, unit, ratio, middle)
	case beyond(l.MedianWarn):
		note(Warn, "%.1f %s is %.2f times the median of all, %.1f", c.Value, unit, ratio, middle)
	}
	return v, why
}

// findings names the GPUs and pairs that are to blame for a family's bad cells.
func (f *Family) findings(n int) (out []Finding) {
	if f.matrix() {
		return f.blame(n)
	}
	for _, c := range f.Cells {
		if c.Verdict.bad() {
			out = append(out, Finding{f.Name, []int{max(c.From, c.To)}, c.Verdict, fmt.Sprintf("%s: %s: %s", c.name(), f.Title, c.Reason)})
		}
	}
	return out
}

// blame goes through a matrix of n GPUs: one that is slow with everyone is at
// fault itself, a pair that alone is slow has a bad path.
func (f *Family) blame(n int) (out []Finding) {
	bad := selected(f.Cells, func(c Cell) bool { return c.Verdict.bad() })
	measured := selected(f.Cells, func(c Cell) bool { return c.Verdict != NotApplicable })
	find := func(cells []Cell, what string, gpus ...int) {
		v := Pass
		for _, c := range cells {
			v = v.worse(c.Verdict)
		}
		out = append(out, Finding{f.Name, gpus, v, fmt.Sprintf("%s: %s: %s", what, f.Title, f.worst(cells).Reason)})
	}
	alone := " (this path alone)"
	switch {
	case len(bad) == 0:
		return nil
	case n == 2: // nobody else to compare with
		alone = " (the path, or either GPU)"
	case len(bad) == len(measured):
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		find(bad, fmt.Sprintf("all %d GPUs, between one another", n), all...)
		return out
	default:
		left := bad
		for _, s := range f.suspects(n, bad, measured) {
			mine := selected(left, s.of)
			if len(mine) < 2 {
				continue // others explain it
			}
			find(mine, s.what, s.gpu)
			left = selected(left, func(c Cell) bool { return !s.of(c) })
		}
		bad = left
	}
	for _, c := range bad {
		find([]Cell{c}, c.name()+alone, c.From, c.To)
	}
	return out
}

// worst is the cell to quote: one without a value, or the slowest.
func (f *Family) worst(cells []Cell) Cell {
	return slices.MinFunc(cells, func(a, b Cell) int {
		if f.Limits.Lower && a.Value > 0 && b.Value > 0 {
			return cmp.Compare(b.Value, a.Value)
		}
		return cmp.Compare(a.Value, b.Value)
	})
}

// A suspect is a GPU all of whose cells are bad: all that it has a part in, or
// those to others, or those from them.
type suspect struct {
	gpu  int
	what string
	of   func(Cell) bool
	rate float64 // of its cells together
}

// suspects come worst first, those with all cells before those with one
// direction.
func (f *Family) suspects(n int, bad, measured []Cell) (out []suspect) {
	directions := []struct {
		what string
		of   func(c Cell, g int) bool
	}{
		{"GPU %d, with every other one", func(c Cell, g int) bool { return c.From == g || c.To == g }},
		{"GPU %d, to every other one", func(c Cell, g int) bool { return c.From == g }},
		{"GPU %d, from every other one", func(c Cell, g int) bool { return c.To == g }},
	}
	if !slices.ContainsFunc(f.Cells, func(c Cell) bool { return c.From > c.To }) {
		directions = directions[:1] // a pair's cell is of both directions
	}
	for _, d := range directions {
		var found []suspect
		for g := range n {
			s := suspect{gpu: g, what: fmt.Sprintf(d.what, g), of: func(c Cell) bool { return d.of(c, g) }}
			mine := selected(bad, s.of)
			if len(mine) < 2 || len(mine) != len(selected(measured, s.of)) {
				continue
			}
			for _, c := range mine {
				s.rate += c.Value
			}
			if f.Limits.Lower {
				s.rate = -s.rate
			}
			found = append(found, s)
		}
		slices.SortStableFunc(found, func(a, b suspect) int { return cmp.Compare(a.rate, b.rate) })
		out = append(out, found...)
	}
	return out
}

func selected(cells []Cell, f func(Cell) bool) (out []Cell) {
	for _, c := range cells {
		if f(c) {
			out = append(out, c)
		}
	}
	return out
}
