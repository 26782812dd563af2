package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

// mostLevels is the largest number of values of a fact that may explain figures; one with more is
// as good as a name.
const mostLevels = 64

// factLevels lists the facts of which there are several values, by name, and the number of groups
// that are tested for each figure.
func (b *builder) factLevels() (several []string, groups int) {
	levels := map[string]map[string]bool{}
	for i := range b.facts {
		for what, value := range b.facts[i] {
			if levels[what] == nil {
				levels[what] = map[string]bool{}
			}
			levels[what][value] = true
		}
	}
	for what, values := range levels {
		if len(values) > 1 {
			several = append(several, what)
		}
		if len(values) > 1 && len(values) <= mostLevels {
			groups += len(values)
		}
	}
	slices.Sort(several)
	return several, groups
}

// A groupKey identifies a group over several figures; without a fact, by its machines.
type groupKey struct {
	kind              int
	what, value, have string
}

// A split is a part of a column's machines.
type split struct {
	what, value string
	members     map[int]bool // rows
	p           float64
	change      float64 // of the median, as a distance
}

// explain finds groups that a fact sets apart, and takes what they explain from the distances of
// their members: the group that chance explains least first.
func (b *builder) explain(c *column, p float64, groups map[groupKey]*Group) {
	const rounds = 4
	for range rounds {
		s, ok := b.bestSplit(c, p)
		if !ok {
			s, ok = c.clusters()
		}
		if !ok {
			return
		}
		b.note(c, s, groups)
		for i := range s.members {
			c.rows[i].shift += s.change
			c.rows[i].typical -= s.change
		}
	}
}

// bestSplit returns the version whose machines are the most extreme ones with the least probability
// by chance, if that is less than p.
func (b *builder) bestSplit(c *column, p float64) (best split, ok bool) {
	order := make([]int, len(c.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(c.rows[i].typical, c.rows[j].typical) })
	rank := make([]int, len(order))
	for at, i := range order {
		rank[i] = at
	}
	n := len(c.rows)
	for _, what := range b.several {
		levels := map[string][]int{}
		for i, r := range c.rows {
			if value, has := b.facts[r.node][what]; has {
				levels[value] = append(levels[value], i)
			}
		}
		if len(levels) < 2 || len(levels) > mostLevels {
			continue
		}
		for _, value := range slices.Sorted(maps.Keys(levels)) {
			rows := levels[value]
			m := len(rows)
			if m < 2 || 2*m > n {
				continue
			}
			low, high := 0, 0 // members among the m best and the m worst
			for _, i := range rows {
				if rank[i] < m {
					low++
				}
				if rank[i] >= n-m {
					high++
				}
			}
			chances := 2 * overlap(n, m, max(low, high))
			if chances >= p || ok && rankedAfter(chances, what, best) {
				continue
			}
			members := map[int]bool{}
			for _, i := range rows {
				members[i] = true
			}
			if change := c.gap(members); math.Abs(change) >= c.practical() {
				best, ok = split{what, value, members, chances, change}, true
			}
		}
	}
	return best, ok
}

// rankedAfter orders explanations: by probability, and equal ones by the fact.
func rankedAfter(p float64, what string, best split) bool {
	if p != best.p {
		return p > best.p
	}
	return rankFact(what) >= rankFact(best.what)
}

// overlap returns the probability that of m machines chosen at random at least k are among the m
// most extreme of n (hypergeometric).
func overlap(n, m, k int) (p float64) {
	choose := func(n, k int) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))
		return a - b - c
	}
	for i := k; i <= m; i++ {
		if m-i <= n-m {
			p += math.Exp(choose(m, i) + choose(n-m, m-i) - choose(n, m))
		}
	}
	return p
}

// gap returns the difference of the medians of some rows and of the others.
func (c *column) gap(members map[int]bool) float64 {
	var in, out []float64
	for i, r := range c.rows {
		if members[i] {
			in = append(in, r.typical)
		} else {
			out = append(out, r.typical)
		}
	}
	return stat.Median(in) - stat.Median(out)
}

// A cluster must have this part of the machines, and be as many standard deviations away.
const (
	smallestCluster = 0.2 // fewer are outliers each by itself
	clusterGap      = 6
)

// clusters splits a column in two where the values lie in two separate clusters: the split with the
// smallest sum of distances from the two medians.
func (c *column) clusters() (s split, ok bool) {
	n := len(c.rows)
	fewest := max(MinPeers, int(math.Ceil(smallestCluster*float64(n))))
	if n < 2*fewest {
		return s, false
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(c.rows[i].typical, c.rows[j].typical) })
	sums := make([]float64, n+1)
	for k, i := range order {
		sums[k+1] = sums[k] + c.rows[i].typical
	}
	cost := func(from, to int) float64 { // of sorted values, from their median
		mid := (from + to) / 2
		m := c.rows[order[mid]].typical
		return m*float64(mid-from) - (sums[mid] - sums[from]) + (sums[to] - sums[mid]) - m*float64(to-mid)
	}
	at, least := 0, math.Inf(1)
	for k := fewest; k <= n-fewest; k++ {
		if total := cost(0, k) + cost(k, n); total < least {
			at, least = k, total
		}
	}
	side := func(rows []int) (values []float64) {
		for _, i := range rows {
			values = append(values, c.rows[i].typical)
		}
		return values
	}
	low, high := side(order[:at]), side(order[at:])
	gap := stat.Median(high) - stat.Median(low)
	noise := max(stat.MAD(low), stat.MAD(high), c.practical()/10)
	between := high[0] - low[len(low)-1]
	if gap < c.practical() || gap < clusterGap*noise || between < noise {
		return s, false
	}
	s = split{members: map[int]bool{}, change: gap}
	part := order[at:]
	if at <= n/2 {
		part, s.change = order[:at], -gap
	}
	for _, i := range part {
		s.members[i] = true
	}
	return s, true
}

// note adds a split to the groups.
func (b *builder) note(c *column, s split, groups map[groupKey]*Group) {
	var names []string
	var in, out []float64
	for i, r := range c.rows {
		if s.members[i] {
			names = append(names, b.Nodes[r.node].Name)
			in = append(in, r.value)
		} else {
			out = append(out, r.value)
		}
	}
	key := groupKey{c.Kind, s.what, s.value, ""}
	if s.what == "" {
		key.have = strings.Join(names, ",")
	}
	g := groups[key]
	if g == nil {
		g = &Group{Kind: c.Kind, What: s.what, Value: s.value, Nodes: names, Against: len(out)}
		groups[key] = g
	}
	if len(names) > len(g.Nodes) {
		g.Nodes, g.Against = names, len(out)
	}
	g.Figures = append(g.Figures, Change{
		Figure: slices.Index(b.columns, c), Median: stat.Median(in), Peers: stat.Median(out),
		Change: c.change(s.change), Worse: s.change > 0 && c.Better != result.Unknown,
	})
}

func (b *builder) finishGroups(groups map[groupKey]*Group) {
	size := func(c Change) float64 { return math.Abs(c.Change) / b.Figures[c.Figure].practical() }
	for _, g := range groups {
		slices.SortStableFunc(g.Figures, func(x, y Change) int { return cmp.Compare(size(y), size(x)) })
		if g.What != "" {
			g.Also = b.shared(g)
		}
		b.Groups = append(b.Groups, *g)
	}
	slices.SortFunc(b.Groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(size(y.Figures[0]), size(x.Figures[0])), strings.Compare(x.What, y.What), strings.Compare(x.Value, y.Value), strings.Compare(x.Nodes[0], y.Nodes[0]))
	})
}

// shared lists the other versions that a group's machines have, and no others of the kind.
func (b *builder) shared(g *Group) (also []string) {
	in := map[string]bool{}
	for _, name := range g.Nodes {
		in[name] = true
	}
	counts := map[[2]string][2]int{} // members and others with a fact
	for i, n := range b.Nodes {
		if n.Kind != g.Kind {
			continue
		}
		for what, value := range b.facts[i] {
			k := counts[[2]string{what, value}]
			if in[n.Name] {
				k[0]++
			} else {
				k[1]++
			}
			counts[[2]string{what, value}] = k
		}
	}
	for _, f := range slices.SortedFunc(maps.Keys(counts), func(x, y [2]string) int {
		return cmp.Or(rankFact(x[0])-rankFact(y[0]), strings.Compare(x[0], y[0]))
	}) {
		if k := counts[f]; k[0] == len(g.Nodes) && k[1] == 0 && f[0] != g.What {
			also = append(also, f[0]+" "+f[1])
		}
	}
	return also
}

// causes says what may explain an outlier: the checks of the machine that did not pass, an object
// that all its deviations have in common, versions that none or few of its peers have. The remedy is
// that of the check, on this machine or another.
func (b *builder) causes(node int, o *Outlier) (causes []string, remedy string) {
	causes = []string{}
	if name := common(o.Deviations); name != "" {
		causes = append(causes, "everything that is off has to do with "+name)
	}
	// What many others have too explains nothing.
	own := slices.DeleteFunc(slices.Clone(b.problems[node]), func(p problem) bool { return 5*b.having(p) > len(b.Nodes) })
	const most = 3
	worst := slices.SortedStableFunc(slices.Values(own), func(x, y problem) int {
		return slices.Index(result.Verdicts(), x.verdict) - slices.Index(result.Verdicts(), y.verdict)
	})
	for i, p := range worst {
		if i == most {
			causes = append(causes, fmt.Sprintf("%d more of its checks did not pass", len(worst)-most))
			break
		}
		causes = append(causes, fmt.Sprintf("%s %s: %s", p.check, map[result.Verdict]string{result.Fail: "failed", result.Warn: "warned", result.Error: "could not run"}[p.verdict], p.reason))
		remedy = cmp.Or(remedy, p.remedy)
	}
	causes = append(causes, b.rare(node)...)
	if remedy == "" {
		for _, f := range b.Failures {
			if f.Check == b.Figures[o.Deviations[0].Figure].Check {
				remedy = cmp.Or(remedy, f.Remedy)
			}
		}
	}
	if remedy == "" {
		remedy = fmt.Sprintf("see its clocks, temperatures and links (harness report … --machine %s), then run harness diag -r 3 on it", o.Node)
	}
	return causes, remedy
}

// having returns how many machines have a problem.
func (b *builder) having(p problem) int {
	for _, f := range b.Failures {
		if f.Check == p.check && f.Verdict == p.verdict {
			return len(f.Nodes)
		}
	}
	return 0
}

// common returns the object that all deviations of single objects concern; "" if there is none, or
// if a deviation is of all objects.
func common(all []Deviation) string {
	n := map[string]int{}
	for _, d := range all {
		if d.Object == "" {
			return ""
		}
		n[d.Object]++
		if d.Peer != d.Object && d.Peer != "" {
			n[d.Peer]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if n[name] == len(all) {
			return name
		}
	}
	return ""
}

// rare lists the versions of a machine that at most one in fifty of its peers has.
func (b *builder) rare(node int) (out []string) {
	for _, f := range b.Versions {
		if f.Kind != b.Nodes[node].Kind || len(f.Values) > mostLevels {
			continue
		}
		value := b.facts[node][f.What]
		for _, v := range f.Values {
			if v.Value == value && 50*(len(v.Nodes)-1) <= b.Kinds[f.Kind].Nodes && 10*len(f.Values[0].Nodes) >= 9*(b.Kinds[f.Kind].Nodes-1) && v.Value != f.Values[0].Value {
				out = append(out, fmt.Sprintf("%s is %s, which %s; %d have %s", f.What, cmp.Or(value, "not set"), few(len(v.Nodes)-1), len(f.Values[0].Nodes), cmp.Or(f.Values[0].Value, "none")))
			}
		}
	}
	const most = 3
	return out[:min(len(out), most)]
}

func few(others int) string {
	switch others {
	case 0:
		return "no peer has"
	case 1:
		return "one peer has"
	}
	return fmt.Sprintf("%d peers have", others)
}
