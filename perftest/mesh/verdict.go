package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// limits are what a value is held against: fractions of what the port's rate
// allows, and of what is typical in this mesh. Of latencies they are multiples.
type limits struct{ pass, fail, warnTypical, failTypical float64 }

var (
	// Healthy links carry 0.92 (RoCE with small MTUs) to 0.98 of their rate.
	bandwidthLimits = limits{pass: 0.88, fail: 0.75, warnTypical: 0.93, failTypical: 0.80}
	// Both directions share the slot and the memory of a host.
	bothLimits = limits{pass: 0.75, fail: 0.5, warnTypical: 0.90, failTypical: 0.75}
	// Switches between add to it: a few hundred nanoseconds each.
	latencyLimits = limits{warnTypical: 1.5, failTypical: 3}
)

// lineRate is the size of messages, in bytes, from which a port's rate should be
// reached.
const lineRate = 32 << 10

func (r *Report) limits() limits {
	switch {
	case r.Latency():
		return latencyLimits
	case r.Both:
		return bothLimits
	}
	return bandwidthLimits
}

// reference is what a cell's slower port could carry, bytes a second; 0: not to
// be known. Soft RoCE's rate is a number and no more.
func (r *Report) reference(c *Cell) float64 {
	least := 0.0
	for _, i := range []int{c.From, c.To} {
		p := &r.Ports[i]
		rate := cmp.Or(p.Expected, p.Before.Gbit)
		if r.Latency() || r.Bytes < lineRate || !p.Hardware && p.Expected == 0 || rate == 0 {
			return 0
		}
		if least == 0 || rate < least {
			least = rate
		}
	}
	return least * 1e9 / 8
}

// better reports whether a is a better value than b.
func (r *Report) better(a, b float64) bool {
	if r.Latency() {
		return a < b
	}
	return a > b
}

// typical is the median of the ports' best values. A single slow port or host
// spoils up to half of all cells and more, but only its own best. Of two in the
// middle it is the better one, as half the ports may be spoilt by the pairs they
// are in. Of fewer than three ports with a value there is none.
func (r *Report) typical(value func(c *Cell) float64) float64 {
	best := make([]float64, len(r.Ports))
	for i := range r.Cells {
		c := &r.Cells[i]
		v := value(c)
		if v == 0 {
			continue
		}
		for _, p := range []int{c.From, c.To} {
			if best[p] == 0 || r.better(v, best[p]) {
				best[p] = v
			}
		}
	}
	best = slices.DeleteFunc(best, func(v float64) bool { return v == 0 })
	if len(best) < 3 {
		return 0
	}
	slices.Sort(best)
	if r.Latency() {
		slices.Reverse(best)
	}
	return best[len(best)/2]
}

// judge gives cells their verdicts and finds who is to blame.
func (r *Report) judge() {
	typical := map[float64]float64{} // by reference: ports of different rates each with their equals
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Reference = r.reference(c)
		typical[c.Reference] = 0
	}
	for reference := range typical {
		typical[reference] = r.typical(func(c *Cell) float64 {
			if c.Reference != reference {
				return 0
			}
			return c.Value
		})
	}
	r.Typical = r.typical(func(c *Cell) float64 { return c.Value })
	for i := range r.Cells {
		c := &r.Cells[i]
		c.Verdict, c.Reason = r.judgeCell(c, typical[c.Reference])
	}
	r.Findings = append(r.Findings, r.links()...)
	r.Findings = append(r.Findings, r.blame()...)
	r.Findings = append(r.Findings, r.increased()...)
	r.Verdict = Pass
	for _, f := range r.Findings {
		r.Verdict = r.Verdict.worse(f.Verdict)
	}
}

func (r *Report) judgeCell(c *Cell, typical float64) (v Verdict, why string) {
	l := r.limits()
	switch {
	case c.Error != "":
		return Fail, c.Error
	case c.Value == 0:
		return Fail, "it was not measured"
	}
	v = Pass
	note := func(got Verdict, format string, a ...any) {
		if v.worse(got) != v {
			v, why = got, fmt.Sprintf(format, a...)
		}
	}
	if c.Reference > 0 {
		part := c.Value / c.Reference
		text := func(got Verdict) {
			note(got, "%s is %.0f %% of the port's rate; %.0f %% or more is expected", r.format(c.Value), 100*part, 100*l.pass)
		}
		switch {
		case part < l.fail:
			text(Fail)
		case part < l.pass:
			text(Warn)
		}
	}
	if typical == 0 {
		return v, why
	}
	ratio := c.Value / typical
	beyond := func(limit float64) bool { return r.better(limit, ratio) }
	text := fmt.Sprintf("%s is %.2f times what is typical here, %s", r.format(c.Value), ratio, r.format(typical))
	switch {
	case beyond(l.failTypical):
		note(Fail, "%s", text)
	case beyond(l.warnTypical):
		note(Warn, "%s", text)
	}
	return v, why
}

// format is a value for findings, in the unit that JSON does not decide.
func (r *Report) format(v float64) string {
	if r.Latency() {
		return fmt.Sprintf("%.2f µs", v/1e3)
	}
	return fmt.Sprintf("%.2f GB/s", v/1e9)
}

func (v Verdict) bad() bool { return v == Warn || v == Fail }

// A suspect is a part of the mesh all of whose cells are bad.
type suspect struct {
	kind  string
	what  string
	ports []int
	hosts []int
	of    func(*Cell) bool
	other func(*Cell) int // the other end; were it always the same, that might be to blame
}

// blame goes through the bad cells: a host all of whose ports are slow, a port
// that is slow with everyone, or in one direction, and what is left is single
// paths. Whoever explains most comes first; what it explains counts for nobody
// else.
func (r *Report) blame() (out []Finding) {
	var left, measured []*Cell
	for i := range r.Cells {
		c := &r.Cells[i]
		measured = append(measured, c)
		if c.Verdict.bad() {
			left = append(left, c)
		}
	}
	switch {
	case len(left) == 0:
		return nil
	case len(left) == len(measured) && len(r.Ports) > 2 && r.Pattern != Self:
		return []Finding{r.everyone(left)}
	}
	for _, s := range r.suspects() {
		mine := chosen(left, s.of)
		good := slices.ContainsFunc(measured, func(c *Cell) bool { return s.of(c) && !c.Verdict.bad() })
		if good || others(mine, s.other) < 2 {
			continue
		}
		out = append(out, r.find(s.kind, s.what, s.ports, s.hosts, mine))
		left = chosen(left, func(c *Cell) bool { return !s.of(c) })
	}
	return append(out, r.paths(left)...)
}

// others counts the different other ends.
func others(cells []*Cell, other func(*Cell) int) int {
	seen := map[int]bool{}
	for _, c := range cells {
		seen[other(c)] = true
	}
	return len(seen)
}

func chosen(cells []*Cell, f func(*Cell) bool) (out []*Cell) {
	for _, c := range cells {
		if f(c) {
			out = append(out, c)
		}
	}
	return out
}

func (r *Report) everyone(cells []*Cell) Finding {
	var ports []int
	for i := range r.Ports {
		ports = append(ports, i)
	}
	return r.find("all", fmt.Sprintf("all %d ports, with one another", len(ports)), ports, nil, cells)
}

// suspects are hosts, ports, and ports in one direction.
func (r *Report) suspects() (out []suspect) {
	out = append(out, r.suspectHosts()...)
	for i := range r.Ports {
		out = append(out, suspect{"port", r.Name(i) + ", with every other one", []int{i}, nil,
			func(c *Cell) bool { return c.From == i || c.To == i }, func(c *Cell) int { return c.From + c.To - i }})
	}
	for i := range r.Ports {
		out = append(out,
			suspect{"port", r.Name(i) + ", sending to every other one", []int{i}, nil, func(c *Cell) bool { return c.From == i }, func(c *Cell) int { return c.To }},
			suspect{"port", r.Name(i) + ", receiving from every other one", []int{i}, nil, func(c *Cell) bool { return c.To == i }, func(c *Cell) int { return c.From }})
	}
	return out
}

// suspectHosts are those with several ports; where one has only one, it is the
// port that is named.
func (r *Report) suspectHosts() (out []suspect) {
	for h, name := range r.Hosts {
		var ports []int
		for i, p := range r.Ports {
			if p.Host == h {
				ports = append(ports, i)
			}
		}
		if len(ports) < 2 || len(r.Hosts) < 3 {
			continue // of two hosts each would be as good a suspect
		}
		for _, d := range []struct {
			what string
			from bool
			to   bool
		}{{"all ports", true, true}, {"all ports, sending", true, false}, {"all ports, receiving", false, true}} {
			out = append(out, suspect{"host", fmt.Sprintf("host %s, %s (%d)", name, d.what, len(ports)), ports, []int{h},
				func(c *Cell) bool {
					return d.from && r.Ports[c.From].Host == h || d.to && r.Ports[c.To].Host == h
				},
				func(c *Cell) int { return r.Ports[c.From].Host + r.Ports[c.To].Host - h }})
		}
	}
	// Those in both directions before those in one.
	slices.SortStableFunc(out, func(a, b suspect) int { return cmp.Compare(strings.Count(a.what, ","), strings.Count(b.what, ",")) })
	return out
}

// paths are the cells that nobody else explains. Both directions of a pair are
// one finding.
func (r *Report) paths(left []*Cell) (out []Finding) {
	done := map[*Cell]bool{}
	for _, c := range left {
		if done[c] {
			continue
		}
		pair, arrow := []*Cell{c}, "→"
		for _, d := range left {
			if d != c && d.From == c.To && d.To == c.From {
				pair, arrow = append(pair, d), "↔"
				done[d] = true
			}
		}
		what := r.Name(c.From) + " " + arrow + " " + r.Name(c.To)
		if r.alone(c) {
			what += " (the path, or either port)"
		} else {
			what += " (this path alone)"
		}
		out = append(out, r.find("path", what, []int{c.From, c.To}, nil, pair))
	}
	return out
}

// alone reports whether a port of the cell has been measured with no third one,
// so that nothing tells port and path apart.
func (r *Report) alone(c *Cell) bool {
	third := func(port, other int) bool {
		return slices.ContainsFunc(r.Cells, func(d Cell) bool {
			return (d.From == port && d.To != other || d.To == port && d.From != other) && d.Verdict == Pass
		})
	}
	return !third(c.From, c.To) || !third(c.To, c.From)
}

// find makes a finding of cells, with the worst of them quoted.
func (r *Report) find(kind, what string, ports, hosts []int, cells []*Cell) Finding {
	v := Pass
	for _, c := range cells {
		v = v.worse(c.Verdict)
	}
	worst := slices.MinFunc(cells, func(a, b *Cell) int {
		switch {
		case (a.Value == 0) != (b.Value == 0):
			if a.Value == 0 {
				return -1
			}
			return 1
		case r.better(b.Value, a.Value):
			return -1
		case r.better(a.Value, b.Value):
			return 1
		}
		return 0
	})
	return Finding{kind, ports, hosts, v, what + ": " + worst.Reason}
}
