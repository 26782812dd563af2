package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
)

// missing reports hosts without a port, and ports that are down but should be up.
func (r *runner) missing() {
	for _, text := range r.absent {
		r.report.Findings = append(r.report.Findings, Finding{Kind: "host", Verdict: result.Fail, Text: text})
	}
	for _, d := range r.down {
		v, why := r.whetherDown(d)
		r.report.Findings = append(r.report.Findings, Finding{Kind: "link", Hosts: []int{d.host}, Verdict: v,
			Text: fmt.Sprintf("%s %s port %d is %s and was not measured%s", r.report.Hosts[d.host], d.port.Device, d.port.Port, states(d.port.Link), why)})
	}
}

func states(l link) string {
	if l.Phys != "" && l.Phys != "LinkUp" {
		return l.State + "/" + l.Phys
	}
	return l.State
}

// whetherDown judges a port that is down. Many hosts have ports with nothing plugged in. A port
// that was asked for, or that is up on most other hosts, should be up.
func (r *runner) whetherDown(d downPort) (v result.Verdict, why string) {
	up := 0
	for _, p := range r.report.Ports {
		if p.Device == d.port.Device && p.Port == d.port.Port {
			up++
		}
	}
	switch {
	case d.asked:
		return result.Fail, ", though it was asked for"
	case up > 0 && 2*up >= len(r.report.Hosts)-len(r.absent):
		return result.Fail, fmt.Sprintf("; it is up on %d of %d hosts", up, len(r.report.Hosts))
	}
	return result.Pass, ""
}

// links compares each port's link with what it should be, and with its state before.
func (r *Report) links() (out []Finding) {
	add := func(i int, format string, a ...any) {
		out = append(out, Finding{Kind: "link", Ports: []int{i}, Verdict: result.Fail, Text: r.Name(i) + ": " + fmt.Sprintf(format, a...)})
	}
	for i := range r.Ports {
		p := &r.Ports[i]
		usual, of := r.usual(i)
		switch {
		case p.Expected > 0 && p.Before.Gbit < p.Expected && p.Hardware:
			add(i, "the link is at %v; %g Gb/s are expected", p.Before, p.Expected)
		case usual.Gbit > p.Before.Gbit:
			add(i, "the link is at %v; %d like it are at %v", p.Before, of, usual)
		}
		switch {
		case p.After.State != p.Before.State:
			add(i, "the link was %s before and is %s now", p.Before.State, states(p.After))
		case p.After != p.Before:
			add(i, "the link was at %v before and is at %v now", p.Before, p.After)
		}
	}
	return out
}

// usual is the link that most ports similar to a port have: those with the same device and number
// on other hosts, otherwise all others. Zero: no majority.
func (r *Report) usual(port int) (link, int) {
	p := &r.Ports[port]
	pick := func(like func(q *Port) bool) (best link, n int) {
		count := map[link]int{}
		total := 0
		for i := range r.Ports {
			if q := &r.Ports[i]; i != port && q.Hardware && like(q) {
				count[q.Before]++
				total++
			}
		}
		for l, k := range count {
			if 2*k > total && total >= 2 {
				return l, k
			}
		}
		return link{}, 0
	}
	if l, n := pick(func(q *Port) bool { return q.Device == p.Device && q.Port == p.Port && q.Host != p.Host }); n > 0 {
		return l, n
	}
	return pick(func(q *Port) bool { return q.LinkType == p.LinkType && len(r.Hosts) == 1 })
}

// increased turns counters that increased into findings, one for each port and verdict.
func (r *Report) increased() (out []Finding) {
	for i := range r.Ports {
		texts := map[result.Verdict][]string{}
		for _, name := range sortedKeys(r.Ports[i].Counters) {
			m, ok := watched(name)
			if !ok {
				continue
			}
			texts[m.verdict] = append(texts[m.verdict], fmt.Sprintf("%s +%d (%s)", name, r.Ports[i].Counters[name], m.text))
		}
		for _, v := range []result.Verdict{result.Fail, result.Warn, result.Pass} {
			if len(texts[v]) > 0 {
				out = append(out, Finding{Kind: "counter", Ports: []int{i}, Verdict: v, Text: r.Name(i) + ": " + strings.Join(texts[v], ", ")})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(order(a.Verdict), order(b.Verdict)) })
	return out
}

// order sorts the worst verdict first.
func order(v result.Verdict) int {
	return slices.Index([]result.Verdict{result.Fail, result.Warn, result.Pass}, v)
}
