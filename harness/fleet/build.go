package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// Options are for [Collector.Fleet].
type Options struct {
	Now      time.Time
	MaxAge   time.Duration // after which a certificate is old; 0: never
	Expected *Expected     // nil: not known
}

// A builder makes a Fleet of what a Collector has.
type builder struct {
	*Fleet
	c        *Collector
	opt      Options
	machines []*machine // in the order of Nodes
	latest   [][]*run
	facts    []map[string]string
	several  []string // the facts of which there are several values
	problems [][]problem
	columns  []*column
}

// Fleet compares what was collected so far.
func (c *Collector) Fleet(o Options) *Fleet {
	b := &builder{c: c, opt: o, Fleet: &Fleet{
		Version: Version, At: o.Now.UTC(), Certificates: c.certificates, Repeated: c.repeated, Refused: c.refused, Other: c.other,
		Nodes: []Node{}, Kinds: []Kind{}, Figures: []Figure{}, Outliers: []Outlier{}, Groups: []Group{}, Failures: []Failure{}, Versions: []Facts{},
	}}
	b.nodes()
	b.failures()
	b.versions()
	b.coverage()
	b.compare()
	return b.Fleet
}

// nodes lists the machines, their kinds and their latest certificates.
func (b *builder) nodes() {
	b.machines = slices.SortedFunc(maps.Values(b.c.machines), func(x, y *machine) int { return compareNames(x.name, y.name) })
	kinds := map[string]int{}
	var names []string
	for _, m := range b.machines {
		latest := m.latest()
		newest := slices.MaxFunc(latest, func(x, y *run) int { return x.finished.Compare(y.finished) })
		kinds[newest.kind]++
		names = append(names, newest.kind)
		node := Node{Name: m.name, Digest: newest.digest}
		facts := map[string]string{}
		var problems []problem
		var verdicts []result.Result
		for _, r := range latest {
			earlier := -1
			for i := range m.runs {
				if m.runs[i].suite == r.suite {
					earlier++
				}
			}
			node.Suites = append(node.Suites, Suite{r.suite, r.verdict, r.finished, r.checks, earlier})
			verdicts = append(verdicts, result.Result{Verdict: r.verdict})
			maps.Copy(facts, r.facts)
			problems = append(problems, r.problems...)
		}
		maps.Copy(facts, newest.facts)
		if b.opt.Expected != nil {
			if s := b.opt.Expected.Switches[m.name]; s != "" {
				facts["switch"] = s
			}
		}
		node.Verdict = result.Summary(verdicts)
		b.Nodes, b.latest, b.facts, b.problems = append(b.Nodes, node), append(b.latest, latest), append(b.facts, facts), append(b.problems, problems)
	}
	order := slices.SortedFunc(maps.Keys(kinds), func(x, y string) int { return cmp.Or(kinds[y]-kinds[x], strings.Compare(x, y)) })
	index := map[string]int{}
	for i, name := range order {
		index[name] = i
		b.Kinds = append(b.Kinds, Kind{name, kinds[name], kinds[name] >= MinPeers})
	}
	for i := range b.Nodes {
		b.Nodes[i].Kind = index[names[i]]
	}
}

// failures groups the problems of the latest certificates by check and verdict.
func (b *builder) failures() {
	by := map[[2]string]*Failure{}
	reasons := map[[2]string]map[string]bool{}
	for _, list := range append(slices.Clone(b.problems), b.c.together) {
		for _, p := range list {
			key := [2]string{p.check, string(p.verdict)}
			if by[key] == nil {
				by[key] = &Failure{Check: p.check, Title: p.title, Verdict: p.verdict, Reason: p.reason, Remedy: p.remedy}
				reasons[key] = map[string]bool{}
			}
			f := by[key]
			if !slices.Contains(f.Nodes, p.node) {
				f.Nodes = append(f.Nodes, p.node)
			}
			reasons[key][p.reason] = true
			f.Reasons, f.Remedy = len(reasons[key]), cmp.Or(f.Remedy, p.remedy)
		}
	}
	rank := func(v result.Verdict) int { return slices.Index(result.Verdicts(), v) }
	for _, f := range slices.SortedFunc(maps.Values(by), func(x, y *Failure) int {
		return cmp.Or(rank(x.Verdict)-rank(y.Verdict), len(y.Nodes)-len(x.Nodes), strings.Compare(x.Check, y.Check))
	}) {
		b.Failures = append(b.Failures, *f)
	}
}

// versions lists the facts of which a kind has several values.
func (b *builder) versions() {
	for kind := range b.Kinds {
		values := map[string]map[string][]string{}
		for i, n := range b.Nodes {
			if n.Kind != kind {
				continue
			}
			for what := range b.facts[i] {
				if values[what] == nil {
					values[what] = map[string][]string{}
				}
			}
		}
		for i, n := range b.Nodes {
			for what := range values {
				if n.Kind == kind {
					v := b.facts[i][what]
					values[what][v] = append(values[what][v], n.Name)
				}
			}
		}
		var all []Facts
		for _, what := range slices.Sorted(maps.Keys(values)) {
			if len(values[what]) < 2 || what == "names" || what == "switch" {
				continue
			}
			f := Facts{Kind: kind, What: what}
			for _, v := range slices.SortedFunc(maps.Keys(values[what]), func(x, y string) int {
				return cmp.Or(len(values[what][y])-len(values[what][x]), strings.Compare(x, y))
			}) {
				f.Values = append(f.Values, Fact{v, values[what][v]})
			}
			all = append(all, f)
		}
		// Those with the fewest values first: a minority is what people look for.
		slices.SortStableFunc(all, func(x, y Facts) int { return cmp.Or(rankFact(x.What)-rankFact(y.What), len(x.Values)-len(y.Values)) })
		b.Versions = append(b.Versions, all...)
	}
}

// rankFact orders facts: versions before settings.
func rankFact(what string) int {
	if i := slices.Index([]string{"driver", "CUDA", "VBIOS", "NIC firmware", "kernel", "image", "system", "product", "processor"}, what); i >= 0 {
		return i
	}
	if strings.HasPrefix(what, "$") {
		return 20
	}
	return 10
}

// coverage compares the machines with those that should have certificates.
func (b *builder) coverage() {
	c := &b.Coverage
	*c = Coverage{Missing: []string{}, Unexpected: []string{}, Lost: []Lost{}, NotRun: []string{}, Old: []string{}, Suites: []SuiteLack{}, Shared: []Shared{}, MaxAge: b.opt.MaxAge.Seconds(), Verdicts: map[string]int{}}
	known, suites, digests := map[string]bool{}, map[string][]string{}, map[string][]string{}
	for i, n := range b.Nodes {
		known[n.Name] = true
		c.Verdicts[string(n.Verdict)]++
		digests[n.Digest] = append(digests[n.Digest], n.Name)
		if n.Verdict == result.Error || n.Verdict == result.Skip {
			c.NotRun = append(c.NotRun, n.Name)
		}
		newest := time.Time{}
		for _, s := range n.Suites {
			suites[s.Suite] = append(suites[s.Suite], n.Name)
			if s.Finished.After(newest) {
				newest = s.Finished
			}
		}
		age := max(b.At.Sub(newest), 0)
		if b.opt.MaxAge > 0 && age > b.opt.MaxAge {
			c.Old = append(c.Old, n.Name)
		}
		if s := age.Seconds(); i == 0 || s > c.Oldest {
			c.Oldest, c.OldestNode = s, n.Name
		}
		if s := age.Seconds(); i == 0 || s < c.Youngest {
			c.Youngest = s
		}
	}
	for _, name := range slices.Sorted(maps.Keys(suites)) {
		lack := SuiteLack{name, len(suites[name]), []string{}}
		if 2*lack.Nodes > len(b.Nodes) { // fewer: it is not a suite for all
			for _, n := range b.Nodes {
				if !slices.ContainsFunc(n.Suites, func(s Suite) bool { return s.Suite == name }) {
					lack.Without = append(lack.Without, n.Name)
				}
			}
		}
		c.Suites = append(c.Suites, lack)
	}
	for _, d := range slices.Sorted(maps.Keys(digests)) {
		if len(digests[d]) > 1 {
			c.Shared = append(c.Shared, Shared{d, digests[d]})
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(b.c.lost), compareNames) {
		if !known[name] {
			c.Lost = append(c.Lost, b.c.lost[name])
		}
	}
	if b.opt.Expected == nil {
		return
	}
	c.Missing, c.Unexpected = b.opt.Expected.against(known)
	c.Expected = len(b.opt.Expected.Nodes)
}

// compareNames orders names by the numbers in them: node2 before node10.
func compareNames(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if isDigit(x[0]) && isDigit(y[0]) {
			m, n := digits(x), digits(y)
			p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
			if c := cmp.Or(len(p)-len(q), strings.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[m:], y[n:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits returns how many digits a text begins with.
func digits(s string) (n int) {
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}
