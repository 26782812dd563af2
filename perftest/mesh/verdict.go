package mesh

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/perftest/judge"
)

// Values are compared with what the port's rate allows, and with what is typical in this mesh.
var (
	// Healthy links carry 0.92 (RoCE with small MTUs) to 0.98 of their rate.
	bandwidthLimits = judge.Limits{Pass: 0.88, Fail: 0.75, MedianWarn: 0.93, MedianFail: 0.80}
	// Both directions share the PCIe slot and the memory of a host.
	bothLimits = judge.Limits{Pass: 0.75, Fail: 0.5, MedianWarn: 0.90, MedianFail: 0.75}
	// Each switch on the path adds a few hundred nanoseconds.
	latencyLimits = judge.Limits{MedianWarn: 1.5, MedianFail: 3, Lower: true}
)

// lineRate is the message size, in bytes, from which a port's rate should be reached.
const lineRate = 32 << 10

func (r *Report) limits() judge.Limits {
	switch {
	case r.Latency:
		return latencyLimits
	case r.Both:
		return bothLimits
	}
	return bandwidthLimits
}

// reference is what the slower port of a cell could carry, in bytes per second; 0: not known. The
// rate that Soft RoCE reports is only nominal.
func (r *Report) reference(c *Cell) float64 {
	least := 0.0
	for _, i := range []int{c.From, c.To} {
		p := &r.Ports[i]
		rate := cmp.Or(p.Expected, p.Before.Gbit)
		if r.Latency || r.Bytes < lineRate || !p.Hardware && p.Expected == 0 || rate == 0 {
			return 0
		}
		if least == 0 || rate < least {
			least = rate
		}
	}
	return least * 1e9 / 8
}

// typical is the median of the ports' best values. A single slow port or host can spoil half of all
// cells or more, but only its own best value. If there are two middle values, the better one
// counts, since half of the ports may be spoilt by the pairs they are in. With values from fewer
// than three ports, there is no typical value.
func (r *Report) typical(value func(c *Cell) float64) float64 {
	best, better := make([]float64, len(r.Ports)), r.limits().Better
	for i := range r.Cells {
		c := &r.Cells[i]
		v := value(c)
		if v == 0 {
			continue
		}
		for _, p := range []int{c.From, c.To} {
			if best[p] == 0 || better(v, best[p]) {
				best[p] = v
			}
		}
	}
	best = slices.DeleteFunc(best, func(v float64) bool { return v == 0 })
	if len(best) < 3 {
		return 0
	}
	slices.Sort(best)
	if r.Latency {
		slices.Reverse(best)
	}
	return best[len(best)/2]
}

// judge sets the verdicts of the cells and finds what is at fault.
func (r *Report) judge() {
	typical := map[float64]float64{} // by reference: ports are compared with ports of the same rate
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
}

func (r *Report) judgeCell(c *Cell, typical float64) (v result.Verdict, why string) {
	switch {
	case c.Error != "":
		return result.Fail, c.Error
	case c.Value == 0:
		return result.Fail, "it was not measured"
	}
	return r.limits().Judge(c.Value, c.Reference, typical, judge.Words{
		Value:     r.format,
		Reference: func(float64) string { return "the port's rate" },
		Usual:     func(v float64) string { return "what is typical here, " + r.format(v) },
	})
}

// format formats a value for findings, in a unit that does not depend on the View.
func (r *Report) format(v float64) string {
	if r.Latency {
		return fmt.Sprintf("%.2f µs", v/1e3)
	}
	return fmt.Sprintf("%.2f GB/s", v/1e9)
}

// A suspect is a part of the mesh that a finding can name.
type suspect struct {
	judge.Suspect
	kind  string
	what  string
	hosts []int
}

func (r *Report) matrix() *judge.Matrix {
	return &judge.Matrix{Members: len(r.Ports), Cells: len(r.Cells), Limits: r.limits(), Cell: func(i int) (int, int, float64, result.Verdict) {
		c := &r.Cells[i]
		return c.From, c.To, c.Value, c.Verdict
	}}
}

// blame attributes the bad cells to hosts of which all ports are slow, then to ports that are slow
// with all others or in one direction. The remaining cells are single paths.
func (r *Report) blame() (out []Finding) {
	var bad []int
	for i := range r.Cells {
		if r.Cells[i].Verdict.Bad() {
			bad = append(bad, i)
		}
	}
	m := r.matrix()
	switch {
	case len(bad) == 0:
		return nil
	case len(bad) == len(r.Cells) && len(r.Ports) > 2 && r.Pattern != Self:
		return []Finding{r.everyone(m, bad)}
	}
	classes := r.suspects()
	var all []suspect
	var asked [][]judge.Suspect
	for _, class := range classes {
		var of []judge.Suspect
		for _, s := range class {
			of = append(of, s.Suspect)
		}
		all, asked = append(all, class...), append(asked, of)
	}
	culprits, left := m.Blame(asked...)
	for _, c := range culprits {
		s := &all[c.Suspect]
		out = append(out, r.find(m, s.kind, s.what, s.Members, s.hosts, c.Cells))
	}
	return append(out, r.paths(m, left)...)
}

func (r *Report) everyone(m *judge.Matrix, cells []int) Finding {
	var ports []int
	for i := range r.Ports {
		ports = append(ports, i)
	}
	return r.find(m, "all", fmt.Sprintf("all %d ports, with one another", len(ports)), ports, nil, cells)
}

// suspects returns hosts and ports, each in both directions and in one.
func (r *Report) suspects() [][]suspect {
	host, oneWay := r.suspectHosts()
	var port, portOneWay []suspect
	for i := range r.Ports {
		add := func(to *[]suspect, what string, sends, receives bool) {
			*to = append(*to, suspect{judge.Suspect{Members: []int{i}, Sends: sends, Receives: receives}, "port", r.Name(i) + ", " + what, nil})
		}
		add(&port, "with every other one", true, true)
		add(&portOneWay, "sending to every other one", true, false)
		add(&portOneWay, "receiving from every other one", false, true)
	}
	return [][]suspect{host, oneWay, port, portOneWay}
}

// suspectHosts returns the hosts with several ports, in both directions and in one. For a host with
// only one port, the port is named instead.
func (r *Report) suspectHosts() (both, oneWay []suspect) {
	if len(r.Hosts) < 3 {
		return nil, nil // two hosts would be equally suspect
	}
	ports := make([][]int, len(r.Hosts))
	for i, p := range r.Ports {
		ports[p.Host] = append(ports[p.Host], i)
	}
	hostOf := func(port int) int { return r.Ports[port].Host }
	for h, of := range ports {
		if len(of) < 2 {
			continue
		}
		add := func(to *[]suspect, what string, sends, receives bool) {
			*to = append(*to, suspect{judge.Suspect{Members: of, Sends: sends, Receives: receives, Others: hostOf}, "host", fmt.Sprintf("host %s, %s (%d)", r.Hosts[h], what, len(of)), []int{h}})
		}
		add(&both, "all ports", true, true)
		add(&oneWay, "all ports, sending", true, false)
		add(&oneWay, "all ports, receiving", false, true)
	}
	return both, oneWay
}

// paths returns findings for the cells that nothing else explains. Both directions of a pair are
// one finding.
func (r *Report) paths(m *judge.Matrix, left []int) (out []Finding) {
	passed := r.passed()
	found := map[int]bool{}
	for _, i := range left {
		found[i] = true
	}
	for _, i := range left {
		if !found[i] {
			continue
		}
		c := &r.Cells[i]
		pair, arrow := []int{i}, "→"
		if back, ok := r.cell(c.To, c.From); ok && back != i && found[back] {
			pair, arrow = append(pair, back), "↔"
			delete(found, back)
		}
		what := r.Name(c.From) + " " + arrow + " " + r.Name(c.To)
		if r.alone(c, passed) {
			what += " (the path, or either port)"
		} else {
			what += " (this path alone)"
		}
		out = append(out, r.find(m, "path", what, []int{c.From, c.To}, nil, pair))
	}
	return out
}

// passed counts each port's cells that passed.
func (r *Report) passed() []int {
	n := make([]int, len(r.Ports))
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Verdict == result.Pass {
			n[c.From]++
			n[c.To]++
		}
	}
	return n
}

// alone reports whether a port of the cell has no passed cell with a third port, so that a slow
// port cannot be distinguished from a slow path.
func (r *Report) alone(c *Cell, passed []int) bool {
	between := 0
	for _, d := range []*Cell{r.Cell(c.From, c.To), r.Cell(c.To, c.From)} {
		if d != nil && d.Verdict == result.Pass {
			between++
		}
	}
	return passed[c.From] == between || passed[c.To] == between
}

// find makes a finding for cells, and quotes the worst of them.
func (r *Report) find(m *judge.Matrix, kind, what string, ports, hosts, cells []int) Finding {
	worst, v := m.Worst(cells)
	return Finding{kind, ports, hosts, v, what + ": " + r.Cells[worst].Reason}
}
