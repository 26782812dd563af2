package hunt

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/assay-hpc/assay/internal/stat"
)

// A way is the direction in which a node is examined.
type way int

const (
	sends    way = iota // also for values without a direction
	receives            // only for values with a direction
)

// A value is one measurement. from and to are positions in group, or -1 if the value has no
// direction.
type value struct {
	group    []int
	from, to int
	round    int
	x        float64 // logarithm of the value; differences are ratios
	resent   float64
}

// of reports whether the value is about a node in a direction.
func (v *value) of(node int, w way) bool {
	switch {
	case v.from < 0:
		return w == sends && slices.Contains(v.group, node)
	case w == sends:
		return v.group[v.from] == node
	}
	return v.group[v.to] == node
}

// evidence contains the measurements, by round.
type evidence struct {
	directed bool
	rounds   [][]value
	count    map[int]int // node → values
}

// next begins a round.
func (e *evidence) next() { e.rounds = append(e.rounds, nil) }

// add records what a group measured in this round.
func (e *evidence) add(round int, group []int, s Sample) error {
	flows := []Flow{s.Flow}
	if s.Back != nil {
		if len(group) != 2 {
			return fmt.Errorf("a group of %d nodes has a value for the way back; only pairs do", len(group))
		}
		flows = append(flows, *s.Back)
	}
	for _, f := range flows {
		if !(f.Value > 0) || math.IsInf(f.Value, 0) {
			return fmt.Errorf("its value is %v", f.Value)
		}
	}
	if e.count == nil {
		e.count = map[int]int{}
	}
	at := &e.rounds[len(e.rounds)-1]
	for i, f := range flows {
		v := value{group: group, from: -1, to: -1, round: round, x: math.Log(f.Value), resent: f.Resent}
		if s.Back != nil {
			v.from, v.to = i, 1-i
			e.directed = true
		}
		for _, node := range group {
			e.count[node]++
		}
		*at = append(*at, v)
	}
	return nil
}

// ways returns the directions in which nodes are examined.
func (e *evidence) ways() []way { return ways(e.directed) }

func ways(directed bool) []way {
	if directed {
		return []way{sends, receives}
	}
	return []way{sends}
}

// A view is the evidence in strata: groups of rounds with values that are compared with one
// another, but not with those of other strata. Values that are already explained are marked.
type view struct {
	directed bool
	values   [][]value
	byNode   []map[int][]int // by stratum: node → indices of its values
	sorted   [][]float64     // by stratum: differences from what is usual, of values that are not explained
	usual    [][]float64     // by stratum and value: what is usual in its class
	gone     [][]bool        // by stratum and value: explained
}

// ways returns the directions in which nodes are examined.
func (w *view) ways() []way { return ways(w.directed) }

// classSize is how many values a class needs before its median is used as what is usual.
const classSize = 16

// viewAfter makes a view with strata of the given number of rounds; an incomplete stratum at the end
// is left out. explained reports which values are already explained, by a charge against a node
// for example. class says which values are comparable: those within a switch, or between two.
func (e *evidence) viewAfter(rounds int, explained func(*value) bool, class func(*value) int) *view {
	w := &view{directed: e.directed}
	for first := 0; first+rounds <= len(e.rounds); first += rounds {
		values := slices.Concat(e.rounds[first : first+rounds]...)
		byNode := map[int][]int{}
		for i, v := range values {
			for _, node := range v.group {
				byNode[node] = append(byNode[node], i)
			}
		}
		w.values, w.byNode = append(w.values, values), append(w.byNode, byNode)
		gone, usual := make([]bool, len(values)), make([]float64, len(values))
		like := map[int][]float64{}
		for i := range values {
			if gone[i] = explained(&values[i]); !gone[i] {
				c := class(&values[i])
				like[c] = append(like[c], values[i].x)
				like[-1] = append(like[-1], values[i].x)
			}
		}
		median := map[int]float64{}
		for c, xs := range like {
			median[c] = stat.Median(xs)
		}
		var sorted []float64
		for i := range values {
			c := class(&values[i])
			if len(like[c]) < classSize {
				c = -1
			}
			usual[i] = median[c]
			if !gone[i] {
				sorted = append(sorted, values[i].x-usual[i])
			}
		}
		sort.Float64s(sorted)
		w.sorted, w.usual, w.gone = append(w.sorted, sorted), append(w.usual, usual), append(w.gone, gone)
	}
	return w
}

// residual returns by how much a value differs from what is usual in its class.
func (w *view) residual(s, i int) float64 { return w.values[s][i].x - w.usual[s][i] }

// upTo counts the sorted values up to x; below counts those less than x.
func upTo(sorted []float64, x float64) int {
	return sort.Search(len(sorted), func(i int) bool { return sorted[i] > x })
}

func below(sorted []float64, x float64) int { return sort.SearchFloat64s(sorted, x) }

// A tally sums the strata's answers to one question.
type tally struct {
	sum    float64 // of the probabilities
	strata int
}

func (t *tally) add(p float64) { t.sum += p; t.strata++ }

// p returns the probability of all strata together.
func (t tally) p() float64 {
	if t.strata < minStrata {
		return 1
	}
	return stat.Additive(t.sum, t.strata)
}

// question compares one node in one direction with the values in which it has no part. slower is
// the probability of the node's values if it is at most least slower than the others; faster is
// their probability if it is slower by find or more. least and find are logarithms.
func (w *view) question(node int, d way, own func(*value) bool, least, find float64) (slower, faster tally) {
	for s := range w.values {
		mine := w.byNode[s][node]
		if len(mine) == 0 {
			continue
		}
		var a, apart []float64 // the node's values in this direction; all values in which it has a part
		for _, i := range mine {
			v, r := &w.values[s][i], w.residual(s, i)
			if !w.gone[s][i] {
				apart = append(apart, r)
			}
			if v.of(node, d) && (!w.gone[s][i] || own(v)) {
				a = append(a, r)
			}
		}
		others := len(w.sorted[s]) - len(apart)
		if len(a) == 0 || others == 0 {
			continue
		}
		low, high := 0, 0
		for _, r := range a {
			low += upTo(w.sorted[s], r+least)
			high += len(w.sorted[s]) - below(w.sorted[s], r+find)
			for _, q := range apart {
				if q <= r+least {
					low--
				}
				if q >= r+find {
					high--
				}
			}
		}
		slower.add(stat.RankTail(len(a), others, low))
		faster.add(stat.RankTail(len(a), others, high))
	}
	return slower, faster
}

// residuals returns those of a node in a direction.
func (w *view) residuals(node int, d way, own func(*value) bool) (out []float64) {
	for s := range w.values {
		for _, i := range w.byNode[s][node] {
			if v := &w.values[s][i]; v.of(node, d) && (!w.gone[s][i] || own(v)) {
				out = append(out, w.residual(s, i))
			}
		}
	}
	return out
}

// spread returns how much nodes themselves differ, as a standard deviation of the logarithm, in
// the direction with the larger spread: the spread of their medians, less what the noise of that
// many values contributes.
func (w *view) spread(nodes []int) (most float64) {
	for _, d := range w.ways() {
		var medians, noise []float64
		values := 0
		for _, node := range nodes {
			r := w.residuals(node, d, func(*value) bool { return false })
			if len(r) == 0 {
				continue
			}
			m := stat.Median(r)
			medians = append(medians, m)
			values += len(r)
			for _, x := range r {
				noise = append(noise, x-m)
			}
		}
		if len(medians) < fewNodes {
			continue
		}
		// A pair is as fast as its slower node, so slow nodes stand out more than fast ones: the
		// slower half matters.
		m := stat.Median(medians)
		lower := slices.DeleteFunc(slices.Clone(medians), func(x float64) bool { return x > m })
		between, within := max(stat.MAD(medians), 1.4826*(m-stat.Median(lower))), stat.MAD(noise)
		// A median of m normal values varies π/2 times as much as their mean.
		of := math.Pi / 2 * within * within * float64(len(medians)) / float64(values)
		most = max(most, math.Sqrt(max(0, between*between-of)))
	}
	return most
}
