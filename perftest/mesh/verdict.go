package mesh

import (
	"cmp"
	"fmt"
	"slices"
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
	const text = "%s is %.2f times what is typical here, %s"
	switch {
	case beyond(l.failTypical):
		note(Fail, text, r.format(c.Value), ratio, r.format(typical))
	case beyond(l.warnTypical):
		note(Warn, text, r.format(c.Value), ratio, r.format(typical))
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
	ways  []int // of its ports' cells: those that go out, those that come in
}

// The ways of a port's cells.
const (
	sending = iota
	receiving
)

// ends are the cells by port and way: how many are good, and which ones are bad,
// as indices into Report.Cells.
type ends struct {
	good [2][]int
	bad  [2][][]int
}

func (r *Report) ends() (e ends) {
	for way := range e.bad {
		e.good[way], e.bad[way] = make([]int, len(r.Ports)), make([][]int, len(r.Ports))
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		for way, port := range [...]int{sending: c.From, receiving: c.To} {
			if c.Verdict.bad() {
				e.bad[way][port] = append(e.bad[way][port], i)
			} else {
				e.good[way][port]++
			}
		}
	}
	return e
}

// of is a suspect's cells, in their order; none if one of them is good.
func (e *ends) of(s *suspect) (cells []int) {
	for _, way := range s.ways {
		for _, p := range s.ports {
			if e.good[way][p] > 0 {
				return nil
			}
			cells = append(cells, e.bad[way][p]...)
		}
	}
	slices.Sort(cells)
	return slices.Compact(cells)
}

// blame goes through the bad cells: a host all of whose ports are slow, a port
// that is slow with everyone, or in one direction, and what is left is single
// paths. Whoever explains most comes first; what it explains counts for nobody
// else.
func (r *Report) blame() (out []Finding) {
	var bad []*Cell
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Verdict.bad() {
			bad = append(bad, c)
		}
	}
	switch {
	case len(bad) == 0:
		return nil
	case len(bad) == len(r.Cells) && len(r.Ports) > 2 && r.Pattern != Self:
		return []Finding{r.everyone(bad)}
	}
	e := r.ends()
	explained := make([]bool, len(r.Cells))
	for _, s := range r.suspects() {
		cells := slices.DeleteFunc(e.of(&s), func(i int) bool { return explained[i] })
		if !r.severalOthers(&s, cells) {
			continue
		}
		mine := make([]*Cell, len(cells))
		for k, i := range cells {
			mine[k], explained[i] = &r.Cells[i], true
		}
		out = append(out, r.find(s.kind, s.what, s.ports, s.hosts, mine))
	}
	var left []*Cell
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Verdict.bad() && !explained[i] {
			left = append(left, c)
		}
	}
	return append(out, r.paths(left)...)
}

// severalOthers reports whether a suspect's cells have different other ends:
// were it always the same, that might be to blame.
func (r *Report) severalOthers(s *suspect, cells []int) bool {
	first := -1
	for _, i := range cells {
		c := &r.Cells[i]
		other := c.From + c.To - s.ports[0]
		if s.kind == "host" {
			other = r.Ports[c.From].Host + r.Ports[c.To].Host - s.hosts[0]
		}
		if first < 0 {
			first = other
		}
		if other != first {
			return true
		}
	}
	return false
}

func (r *Report) everyone(cells []*Cell) Finding {
	var ports []int
	for i := range r.Ports {
		ports = append(ports, i)
	}
	return r.find("all", fmt.Sprintf("all %d ports, with one another", len(ports)), ports, nil, cells)
}

// suspects are hosts, ports, and ports in one direction.
func (r *Report) suspects() []suspect {
	out := r.suspectHosts()
	for i := range r.Ports {
		out = append(out, suspect{"port", r.Name(i) + ", with every other one", []int{i}, nil, []int{sending, receiving}})
	}
	for i := range r.Ports {
		out = append(out,
			suspect{"port", r.Name(i) + ", sending to every other one", []int{i}, nil, []int{sending}},
			suspect{"port", r.Name(i) + ", receiving from every other one", []int{i}, nil, []int{receiving}})
	}
	return out
}

// suspectHosts are those with several ports, in both directions first; where one
// has only one, it is the port that is named.
func (r *Report) suspectHosts() (out []suspect) {
	if len(r.Hosts) < 3 {
		return nil // of two hosts each would be as good a suspect
	}
	ports := make([][]int, len(r.Hosts))
	for i, p := range r.Ports {
		ports[p.Host] = append(ports[p.Host], i)
	}
	add := func(h int, what string, ways ...int) {
		if n := len(ports[h]); n > 1 {
			out = append(out, suspect{"host", fmt.Sprintf("host %s, %s (%d)", r.Hosts[h], what, n), ports[h], []int{h}, ways})
		}
	}
	for h := range r.Hosts {
		add(h, "all ports", sending, receiving)
	}
	for h := range r.Hosts {
		add(h, "all ports, sending", sending)
		add(h, "all ports, receiving", receiving)
	}
	return out
}

// paths are the cells that nobody else explains. Both directions of a pair are
// one finding.
func (r *Report) paths(left []*Cell) (out []Finding) {
	passed := r.passed()
	found := map[*Cell]bool{}
	for _, c := range left {
		found[c] = true
	}
	for _, c := range left {
		if !found[c] {
			continue
		}
		pair, arrow := []*Cell{c}, "→"
		if back := r.Cell(c.To, c.From); back != c && found[back] {
			pair, arrow = append(pair, back), "↔"
			delete(found, back)
		}
		what := r.Name(c.From) + " " + arrow + " " + r.Name(c.To)
		if r.alone(c, passed) {
			what += " (the path, or either port)"
		} else {
			what += " (this path alone)"
		}
		out = append(out, r.find("path", what, []int{c.From, c.To}, nil, pair))
	}
	return out
}

// passed counts each port's cells that passed.
func (r *Report) passed() []int {
	n := make([]int, len(r.Ports))
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Verdict == Pass {
			n[c.From]++
			n[c.To]++
		}
	}
	return n
}

// alone reports whether a port of the cell has passed with no third one, so that
// nothing tells port and path apart.
func (r *Report) alone(c *Cell, passed []int) bool {
	between := 0
	for _, d := range []*Cell{r.Cell(c.From, c.To), r.Cell(c.To, c.From)} {
		if d != nil && d.Verdict == Pass {
			between++
		}
	}
	return passed[c.From] == between || passed[c.To] == between
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
