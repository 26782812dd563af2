package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A Collector accepts certificates in any order and stores only what a [Fleet] needs of each. It
// must be used by one goroutine at a time.
type Collector struct {
	places   map[place]int32
	list     []placeInfo
	machines map[string]*machine
	together []problem // of checks that several machines did together
	lost     map[string]Lost

	certificates, repeated, refused, other int
}

// NewCollector returns an empty one.
func NewCollector() *Collector {
	return &Collector{places: map[place]int32{}, machines: map[string]*machine{}, lost: map[string]Lost{}}
}

// A place is where a value is found in a machine's certificates.
type place struct{ suite, check, quantity, unit, object, peer string }

type placeInfo struct {
	place
	better result.Better
}

// A machine is what is known about the machine with one name.
type machine struct {
	name string
	seen map[string]bool
	runs []run
}

// A run is what is kept of one certificate.
type run struct {
	suite, digest string
	finished      time.Time
	verdict       result.Verdict
	checks        map[result.Verdict]int
	kind          string
	facts         map[string]string
	problems      []problem
	places        []int32
	values        []float64
}

// A problem is a check that did not pass on a machine.
type problem struct {
	node, check, title, reason, remedy string
	verdict                            result.Verdict
}

// Refuse counts a certificate that was not accepted.
func (c *Collector) Refuse() { c.refused++ }

// Nodes returns the number of machines so far.
func (c *Collector) Nodes() int { return len(c.machines) }

// Add adds a certificate, unless it was added before. Of a cluster's it adds those of its machines,
// and the problems of what they did together. It does not retain it.
func (c *Collector) Add(st *certificate.Statement) {
	p := &st.Predicate
	switch {
	case len(p.Machines) > 0:
		c.addCluster(p)
		return
	case p.Node == nil:
		c.other++
		return
	}
	m := c.machines[p.Node.Name]
	if m == nil {
		m = &machine{name: p.Node.Name, seen: map[string]bool{}}
		c.machines[m.name] = m
	}
	digest := certificate.NodeDigest(p.Node.Identity)
	id := fmt.Sprint(digest, p.Suite, p.Started.UnixMilli(), p.Finished.UnixMilli(), p.Verdict, len(p.Results))
	if m.seen[id] {
		c.repeated++
		return
	}
	m.seen[id] = true
	c.certificates++
	r := run{
		suite: p.Suite, digest: digest, finished: p.Finished, verdict: p.Verdict,
		checks: result.Count(p.Results), kind: kindOf(p.Node), facts: p.Facts(), problems: problems(p.Node.Name, p.Results),
	}
	c.figures(&r, p)
	m.runs = append(m.runs, r)
}

func (c *Collector) addCluster(p *certificate.Predicate) {
	for _, m := range p.Machines {
		if m.Certificate != nil {
			c.Add(m.Certificate)
		}
	}
	var together []result.Result
	for _, r := range p.Results {
		name, own := strings.CutPrefix(r.ID, "node/")
		switch {
		case !own:
			together = append(together, r)
		case r.Verdict == result.Error && !slices.ContainsFunc(p.Machines, func(m certificate.Machine) bool { return m.Name == name }):
			c.lost[name] = Lost{name, r.Reason}
		}
	}
	c.together = append(c.together, problems(fmt.Sprintf("%d machines together", len(p.Machines)), together)...)
}

// figures stores the measured values of a certificate. A check's own value is left out where its
// objects have values: it repeats one of them.
func (c *Collector) figures(r *run, p *certificate.Predicate) {
	for i := range p.Results {
		res := &p.Results[i]
		own := true
		for j := range res.Objects {
			if o := &res.Objects[j]; o.Measured != nil {
				own = false
				c.figure(r, place{p.Suite, res.ID, o.Quantity, o.Measured.Unit, o.Name, o.Peer}, o.Measured)
			}
		}
		if own && res.Measured != nil {
			c.figure(r, place{p.Suite, res.ID, "", res.Measured.Unit, "", ""}, res.Measured)
		}
	}
}

func (c *Collector) figure(r *run, at place, m *result.Measurement) {
	id, ok := c.places[at]
	if !ok {
		id = int32(len(c.list))
		c.places[at] = id
		c.list = append(c.list, placeInfo{at, result.BetterOf(at.check, at.quantity, at.unit, m.LimitKind())})
	}
	r.places, r.values = append(r.places, id), append(r.values, m.Value)
}

func problems(node string, results []result.Result) (out []problem) {
	for i := range results {
		if r := &results[i]; r.Verdict == result.Fail || r.Verdict == result.Error || r.Verdict == result.Warn {
			out = append(out, problem{node, r.ID, r.Title, r.Reason, r.Remedy, r.Verdict})
		}
	}
	return out
}

// latest returns the latest run of each suite, by the suite's name.
func (m *machine) latest() []*run {
	by := map[string]*run{}
	for i := range m.runs {
		if r := &m.runs[i]; by[r.suite] == nil || !r.finished.Before(by[r.suite].finished) {
			by[r.suite] = r
		}
	}
	return slices.SortedFunc(maps.Values(by), func(a, b *run) int { return strings.Compare(a.suite, b.suite) })
}

// kindOf names the kind of machine that one is compared with: its GPUs, and the most frequent kind
// of its links. What may be at fault is no part of it: the state of a port, or its firmware.
func kindOf(n *certificate.Node) string {
	gpus, links := map[string]int{}, map[string]int{}
	for _, g := range n.GPUs {
		gpus[g.Name]++
	}
	for _, p := range n.Ports {
		links[strings.TrimSpace(fmt.Sprintf("%s %s", cmp.Or(p.LinkLayer, "port"), rate(p.Gbit)))]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(gpus)) {
		parts = append(parts, fmt.Sprintf("%d × %s", gpus[name], name))
	}
	if len(links) > 0 {
		parts = append(parts, mostFrequent(links))
	}
	if len(parts) == 0 {
		return "no GPU"
	}
	return strings.Join(parts, ", ")
}

func rate(gbit float64) string {
	if gbit == 0 {
		return ""
	}
	return fmt.Sprintf("%.4g Gb/s", gbit)
}

// mostFrequent returns the key with the largest number; of equal ones the first.
func mostFrequent(n map[string]int) (most string) {
	for _, k := range slices.Sorted(maps.Keys(n)) {
		if most == "" || n[k] > n[most] {
			most = k
		}
	}
	return most
}
