package fleet

import (
	"cmp"
	"math"
	"slices"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

// chance is the probability that a healthy fleet has an outlier, and likewise a group.
const chance = 0.01

// A column is a figure on all machines of a kind, as it is compared.
type column struct {
	Figure
	rows []row
	// Thresholds in units of the noise of the machines, and of their objects.
	nodeNoise, objectNoise         float64
	nodeThreshold, objectThreshold float64
	center                         float64
	machines, objects              []float64 // distances
}

// A row is a machine's part of a column. Distances are positive where the machine is worse.
type row struct {
	node    int
	places  []int32
	values  []float64
	away    []float64 // distance of each object from the same object of the peers
	medians []float64 // of the peers, of each object
	typical float64   // median distance, less what explains it
	value   float64   // median value
	shift   float64   // what a group explains, which every distance is less by
}

// compare finds groups and outliers.
func (b *builder) compare() {
	b.gather()
	var objects, machines, tests float64
	for _, c := range b.columns {
		machines += float64(len(c.rows))
		for _, r := range c.rows {
			if len(r.away) > 1 {
				objects += float64(len(r.away))
			}
		}
	}
	several, levels := b.factLevels()
	b.several = several
	tests = float64(len(b.columns)) * float64(max(levels, 1))
	groups := map[groupKey]*Group{}
	standard := make([][]float64, len(b.Kinds))
	for _, c := range b.columns {
		b.explain(c, chance/2/tests, groups)
		standard[c.Kind] = append(standard[c.Kind], c.spread()...)
	}
	common := make([]float64, len(b.Kinds))
	for kind, d := range standard {
		common[kind] = heaviness(d, 1)
	}
	for _, c := range b.columns {
		c.judge(chance/2/machines, chance/2/max(objects, 1), common[c.Kind])
		c.describe()
		b.Figures = append(b.Figures, c.Figure)
	}
	b.finishGroups(groups)
	b.outliers()
}

// gather makes a column of each figure that MinPeers machines of a kind have.
func (b *builder) gather() {
	type key struct{ kind, figure int }
	figures := map[place]int{}
	of := make([]int, len(b.c.list)) // figures by places
	for id, p := range b.c.list {
		p.object, p.peer = "", ""
		if _, ok := figures[p.place]; !ok {
			figures[p.place] = len(figures)
		}
		of[id] = figures[p.place]
	}
	by := map[key]*column{}
	for i := range b.Nodes {
		kind := b.Nodes[i].Kind
		if !b.Kinds[kind].Compared {
			continue
		}
		for _, r := range b.latest[i] {
			for k, id := range r.places {
				at := key{kind, of[id]}
				c := by[at]
				if c == nil {
					p := b.c.list[id]
					c = &column{Figure: Figure{Kind: kind, Suite: p.suite, Check: p.check, Quantity: p.quantity, Unit: p.unit, Better: p.better}}
					by[at] = c
					b.columns = append(b.columns, c)
				}
				if n := len(c.rows); n == 0 || c.rows[n-1].node != i {
					c.rows = append(c.rows, row{node: i})
				}
				last := &c.rows[len(c.rows)-1]
				last.places, last.values = append(last.places, id), append(last.values, r.values[k])
			}
		}
	}
	b.columns = slices.DeleteFunc(b.columns, func(c *column) bool { return len(c.rows) < MinPeers || !c.measure() })
}

// measure computes the distances of all objects; false if the figure cannot be compared: it counts
// something that is mostly 0.
func (c *column) measure() bool {
	c.Absolute = c.Unit == "%" || c.Unit == "°C"
	by := map[int32][]float64{}
	var all []float64
	for _, r := range c.rows {
		for i, id := range r.places {
			by[id] = append(by[id], r.values[i])
			all = append(all, r.values[i])
		}
	}
	whole := stat.Median(all)
	if !c.Absolute && whole <= 0 {
		return false
	}
	medians := map[int32]float64{}
	for id, values := range by {
		medians[id] = whole
		if m := stat.Median(values); len(values) >= MinPeers && (c.Absolute || m > 0) {
			medians[id] = m
		}
	}
	for i := range c.rows {
		r := &c.rows[i]
		for k, id := range r.places {
			r.medians = append(r.medians, medians[id])
			r.away = append(r.away, c.distance(r.values[k], medians[id]))
		}
		r.typical, r.value = stat.Median(r.away), stat.Median(r.values)
	}
	return true
}

// least is the smallest part of a median that a value counts as: a logarithm of 0 is not finite.
const least = 1e-3

// distance returns how much worse a value is than a median, relative (as a logarithm) or absolute.
func (c *column) distance(value, median float64) float64 {
	d := value - median
	if !c.Absolute {
		d = math.Log(max(value/median, least))
	}
	if c.Better == result.Higher {
		return -d
	}
	return d
}

// change turns a distance into a change of the value: relative, or in the unit.
func (c *column) change(distance float64) float64 {
	if c.Better == result.Higher {
		distance = -distance
	}
	if c.Absolute {
		return distance
	}
	return math.Expm1(distance)
}

// practical is the distance up to which nothing is apart.
func (f *Figure) practical() float64 {
	switch f.Unit {
	case "%":
		return 100 * Practical
	case "°C":
		return PracticalDegrees
	}
	return Practical
}

// spread sets the noise of machines and of objects, and returns all distances in units of it.
func (c *column) spread() (standard []float64) {
	var machines, objects []float64
	for _, r := range c.rows {
		machines = append(machines, r.typical)
		for _, d := range r.away {
			objects = append(objects, d-r.shift)
		}
	}
	c.center = stat.Median(machines)
	floor := c.practical() / 10 // values are rounded, and a fleet may be too alike to judge by its noise
	c.nodeNoise, c.objectNoise = max(stat.MAD(machines), floor), max(stat.MAD(objects), floor)
	c.machines, c.objects = machines, objects
	if c.nodeNoise > floor {
		for _, d := range machines {
			standard = append(standard, (d-c.center)/c.nodeNoise)
		}
	}
	return standard
}

// judge sets the thresholds, for probabilities of one machine's and one object's false alarm. common
// is the h of all figures together.
func (c *column) judge(perMachine, perObject, common float64) {
	threshold := func(d []float64, noise, p float64) float64 {
		z := math.Sqrt2 * math.Erfcinv(2*p)
		return max(c.practical(), noise*quantile(z, len(c.rows))*math.Exp(max(common, heaviness(d, noise))*z*z/2))
	}
	c.nodeThreshold = threshold(c.machines, c.nodeNoise, perMachine)
	c.objectThreshold = threshold(c.objects, c.objectNoise, perObject)
}

// quantile returns the quantile of Student's t (Wallace, Ann. Math. Statist. 30, 1959) that is as
// improbable as z of the normal distribution, for noise that was found among n machines. The median
// absolute deviation is 37 % as efficient as the standard deviation, which costs as many degrees of
// freedom.
func quantile(z float64, n int) float64 {
	df := 0.37*float64(n-1) + 1
	z *= (8*df + 3) / (8*df + 1)
	return math.Sqrt(df * math.Expm1(z*z/df))
}

// heaviness returns Tukey's h of distances: by how much farther out their tails are than a normal
// distribution's, 0 for that. It is measured where machines are better than their peers, since
// faults do not lie there: between the quartile and a quantile that is as far out as there are
// values. Two standard errors are subtracted, since the threshold depends on it exponentially.
func heaviness(d []float64, noise float64) float64 {
	const few, beyond = 200, 12
	n := float64(len(d))
	if n < few {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	q := max(beyond/n, 0.0003)
	below := func(q float64) float64 { return stat.Median(s) - s[int(q*(n-1)+0.5)] }
	near, far := 0.6745, math.Sqrt2*math.Erfcinv(2*q)
	inner, outer := below(0.25), below(q)
	if inner < noise/4 { // rounded values
		inner = noise * near
	}
	// The relative standard errors of quantiles of a normal distribution.
	relative := func(q, z float64) float64 {
		return math.Sqrt(q*(1-q)/n) / (math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)) / z
	}
	const most = 0.35
	width := (far*far - near*near) / 2
	h := math.Log(max(outer/inner, 1e-9)/(far/near)) / width
	return min(max(h-2*math.Hypot(relative(q, far), relative(0.25, near))/width, 0), most)
}

// describe sets what a reader sees of the figure.
func (c *column) describe() {
	var values []float64
	for _, r := range c.rows {
		values = append(values, r.value)
	}
	slices.Sort(values)
	n := len(values)
	c.Nodes, c.Median = n, stat.Median(values)
	c.Low, c.High, c.Least, c.Largest = values[(n-1)/20], values[n-1-(n-1)/20], values[0], values[n-1]
	c.Noise, c.Threshold = c.nodeNoise, c.nodeThreshold
	const steps = 24
	c.Histogram = make([]int, steps)
	for _, v := range values {
		k := 0
		if c.Largest > c.Least {
			k = min(int(steps*(v-c.Least)/(c.Largest-c.Least)), steps-1)
		}
		c.Histogram[k]++
	}
}

// part returns how far a row lies away as a part of the threshold, and the object for which that is
// so; -1: all of them together.
func (c *column) part(r *row) (of float64, object int) {
	// A direction that is not known has two bad sides.
	bad := func(d float64) float64 {
		if c.Better == result.Unknown {
			return math.Abs(d)
		}
		return d
	}
	of, object = bad(r.typical-c.center)/c.nodeThreshold, -1
	if len(r.away) == 1 {
		return of, 0
	}
	for i, d := range r.away {
		if v := bad(d-r.shift-c.center) / c.objectThreshold; v > max(of, 0) {
			of, object = v, i
		}
	}
	return of, object
}

// outliers lists the machines that lie apart in some figure.
func (b *builder) outliers() {
	by := map[int]*Outlier{}
	for f, c := range b.columns {
		for i := range c.rows {
			r := &c.rows[i]
			of, object := c.part(r)
			if math.Abs(of) >= 0.5 {
				b.Nodes[r.node].Distances = append(b.Nodes[r.node].Distances, Distance{f, of})
			}
			if of < 1 {
				continue
			}
			o := by[r.node]
			if o == nil {
				o = &Outlier{Node: b.Nodes[r.node].Name, Peers: b.Kinds[c.Kind].Nodes - 1}
				by[r.node] = o
			}
			o.Deviations = append(o.Deviations, b.deviation(f, r, of, object))
		}
	}
	for node, o := range by {
		slices.SortStableFunc(o.Deviations, func(x, y Deviation) int { return cmp.Compare(b.size(y), b.size(x)) })
		o.Causes, o.Remedy = b.causes(node, o)
		b.Outliers = append(b.Outliers, *o)
	}
	slices.SortFunc(b.Outliers, func(x, y Outlier) int {
		return cmp.Or(cmp.Compare(b.size(y.Deviations[0]), b.size(x.Deviations[0])), compareNames(x.Node, y.Node))
	})
}

// size orders deviations by what they cost: by the change, in multiples of what is practical.
func (b *builder) size(d Deviation) float64 {
	f := &b.Figures[d.Figure]
	return math.Abs(d.Change) / f.practical()
}

func (b *builder) deviation(f int, r *row, of float64, object int) Deviation {
	c := b.columns[f]
	d := Deviation{Figure: f, Value: r.value, Median: c.Median, Change: c.change(r.typical - c.center), Of: of}
	if object >= 0 {
		p := b.c.list[r.places[object]]
		d.Object, d.Peer, d.Value, d.Median = p.object, p.peer, r.values[object], r.medians[object]
		d.Change = c.change(r.away[object] - r.shift - c.center)
		for i, a := range r.away {
			if i != object && a-r.shift-c.center >= c.objectThreshold {
				d.Others++
			}
		}
	}
	d.Over = b.over(r.node, c, r, object)
	return d
}

// over returns the values of a machine over time: of one object, or the median of all.
func (b *builder) over(node int, c *column, r *row, object int) (out []Point) {
	wanted := r.places
	if object >= 0 {
		wanted = wanted[object : object+1]
	}
	is := map[int32]bool{}
	for _, id := range wanted {
		is[id] = true
	}
	for _, run := range b.machines[node].runs {
		if run.suite != c.Suite || run.digest != b.Nodes[node].Digest {
			continue
		}
		var values []float64
		for i, id := range run.places {
			if is[id] {
				values = append(values, run.values[i])
			}
		}
		if len(values) > 0 {
			out = append(out, Point{run.finished, stat.Median(values)})
		}
	}
	slices.SortStableFunc(out, func(x, y Point) int { return x.At.Compare(y.At) })
	if len(out) < 2 {
		return nil
	}
	const most = 64
	return out[max(0, len(out)-most):]
}
