package hunt

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// Medians and ranks do not show a fault that comes and goes: to them it is an outlier. So each
// measurement also has symptoms, which are there or not, and what counts is how often a node, a
// pair or a switch has one, beside how often the rest has.

// A Symptom is something that a measurement may show besides its value.
type Symptom string

// The symptoms.
const (
	Failed   Symptom = "failed"      // there was no value, or only after it was repeated
	Dropped  Symptom = "slow"        // a value below 80 % of what is usual
	Stalled  Symptom = "interrupted" // several packets in a row were lost
	Missing  Symptom = "lost"        // packets were lost
	Doubled  Symptom = "duplicated"  // packets arrived more than once
	Swapped  Symptom = "reordered"   // packets arrived after later ones
	Delayed  Symptom = "late"        // round trips took more than twice what is usual, and LateBy more
	LongTail Symptom = "long tail"   // the slowest hundredth of round trips took more than twice what is usual, and ten times LateBy more
	Hesitant Symptom = "held up"     // a packet took HeldBy longer than the others
)

var symptoms = [...]Symptom{Failed, Dropped, Stalled, Missing, Doubled, Swapped, Delayed, LongTail, Hesitant}

const (
	dropped = 0.8
	// often is how much more often than the rest a part of the network may have a symptom without
	// being accused, and seldom is a share of measurements that accuses nobody.
	often, seldom = 3.0, 0.001
	// common is the share of a round's measurements above which a symptom has no place.
	common = 0.6
	// minEvents is how often a symptom must have been seen.
	minEvents = 3
	// manyNodes is the number of nodes from which on a pair is measured too rarely to be judged.
	manyNodes = 64
	// eventPart is the share of the error probabilities for these tests.
	eventPart = 0.1
)

// Packets is what became of small packets in one direction, while there was no load.
type Packets struct {
	Sent, Lost, Twice, Swapped int
	InRow                      int           // the longest run of lost ones
	Late                       time.Duration // greatest delay, over the least
	// Silent says that none was heard of, which may be an interruption, or a filter's work.
	Silent bool
}

// A flow is a direction of a measurement, with its symptoms.
type flow struct {
	from, to int // nodes; -1: no direction
	value    float64
	packets  Packets
	shows    symptomSet
	own      []int // numbers of the places that it alone passes
}

// A symptomSet has a bit for each of symptoms.
type symptomSet uint16

func (s symptomSet) has(i int) bool { return s&(1<<i) != 0 }

func (s *symptomSet) set(x Symptom, is bool) {
	bit := symptomSet(1) << slices.Index(symptoms[:], x)
	if *s &^= bit; is {
		*s |= bit
	}
}

func (s symptomSet) shows(x Symptom) bool { return s.has(slices.Index(symptoms[:], x)) }

// An event is a group's measurement in a round.
type event struct {
	round  int
	group  []int
	flows  []flow
	rtt    time.Duration // 0: not known
	tail   time.Duration
	shared []int // numbers of the places that all its flows pass
}

// observe records the symptoms of what a group measured in a round.
func (h *hunt) observe(group []int, s Sample) {
	e := event{round: h.rounds, group: group, rtt: s.RTT, tail: s.Tail}
	directions := []*Flow{&s.Flow}
	if len(group) == 2 {
		directions = append(directions, s.Back)
	}
	if len(group) == 2 && h.n < manyNodes {
		e.shared = []int{h.number(place{min(group[0], group[1]), max(group[0], group[1]), Both})}
	}
	for _, node := range group {
		e.shared = append(e.shared, h.number(place{node, anyNode, Both}))
	}
	for i, f := range directions {
		x := flow{from: -1, to: -1}
		if len(group) == 2 && (s.Back != nil || s.Err != nil) {
			x.from, x.to = group[i], group[1-i]
			x.own = []int{h.number(place{x.from, anyNode, Sending}), h.number(place{x.to, anyNode, Receiving})}
			if h.n < manyNodes {
				x.own = append(x.own, h.number(place{x.from, x.to, Sending}))
			}
		}
		x.shows.set(Failed, s.Err != nil || s.Tries > 1)
		if f != nil {
			x.value, x.packets = f.Value, f.Packets
			p := f.Packets
			x.shows.set(Missing, p.Lost > 0)
			x.shows.set(Doubled, p.Twice > 0)
			x.shows.set(Swapped, p.Swapped > 0)
			x.shows.set(Hesitant, p.Late > h.o.HeldBy)
		}
		if f != nil || s.Err != nil {
			e.flows = append(e.flows, x)
		}
	}
	h.events = append(h.events, e)
}

// A place is a part of the network that may have a fault: a node (b is anyNode), or a pair; in both
// directions, or in the one from a, or to a.
type place struct {
	a, b int
	d    Direction
}

const anyNode = -1

// number returns the number of a place; each place has its own.
func (h *hunt) number(p place) int {
	n, known := h.numbers[p]
	if !known {
		n = len(h.numbered)
		h.numbers[p], h.numbered = n, append(h.numbered, p)
	}
	return n
}

// A count is how often a symptom was seen in a place, in rounds.
type count struct {
	with, of int32
	spells   int32 // with others between them, in which it was not seen
	trials   int32 // the value of of at the last one
}

// counts are those of all symptoms.
type counts [len(symptoms)]count

// An oddity is a place that has a symptom more often than the rest.
type oddity struct {
	place
	symptom Symptom
	count
	rest float64 // the share of the others' measurements
	p    float64
	also []oddity // other symptoms of the place that are not by chance
}

// judgeEvents finds the places that have symptoms more often than the rest. Nodes that are accused
// already explain theirs.
func (h *hunt) judgeEvents(look int) {
	h.odd, h.suspicious = nil, false
	if len(h.living()) < 3 {
		return // one pair, and nothing to compare it with
	}
	explained := h.explainedByCharges()
	for {
		all, questions := h.oddities(explained)
		best, more := h.oddest(all, look, questions)
		if best == nil {
			h.suspicious = more
			break
		}
		h.odd = append(h.odd, *best)
		explained[h.numbers[best.place]] = true
	}
}

// oddNode reports whether a node is accused because of its symptoms.
func (h *hunt) oddNode(node int) bool {
	return slices.ContainsFunc(h.odd, func(o oddity) bool { return o.a == node && o.b == anyNode })
}

// hopeless reports whether a group is a pair that is accused of failing each time: to measure it again
// takes long, and says nothing new.
func (h *hunt) hopeless(group []int) bool {
	return len(group) == 2 && slices.ContainsFunc(h.odd, func(o oddity) bool {
		return o.symptom == Failed && o.with == o.of && o.b >= 0 && slices.Contains(group, o.a) && slices.Contains(group, o.b)
	})
}

// explainedByCharges says of each place, by its number, whether a charge explains what is seen there.
func (h *hunt) explainedByCharges() []bool {
	explained := make([]bool, len(h.numbered))
	for i, p := range h.numbered {
		explained[i] = p.b == anyNode && p.d == Both && (h.accused[p.a] != nil || h.loss.accused[p.a] != nil)
	}
	return explained
}

// marks returns the symptoms of an accused node.
func (h *hunt) marks(node int) []oddity {
	p := place{node, anyNode, Both}
	i, known := h.numbers[p]
	if !known || len(h.accused)+len(h.loss.accused) > maxMarks {
		return nil
	}
	explained := h.explainedByCharges()
	explained[i] = false
	all, _ := h.oddities(explained)
	return at(all, p)
}

// maxMarks is up to how many accused nodes the symptoms are counted.
const maxMarks = 16

// at returns the oddities of a place that are not by chance.
func at(all []oddity, p place) (out []oddity) {
	for _, x := range all {
		if x.place == p && x.p <= 0.03 && x.with >= minEvents {
			out = append(out, x)
		}
	}
	return out
}

// explains reports whether a place that is accused contains a flow.
func (p place) explains(f flow, group []int) bool {
	switch {
	case f.from < 0:
		return p.b == anyNode && slices.Contains(group, p.a)
	case p.b == anyNode:
		return p.d != Receiving && f.from == p.a || p.d != Sending && f.to == p.a
	}
	return f.from == p.a && f.to == p.b || p.d == Both && f.from == p.b && f.to == p.a
}

// tallies counts symptoms by place, without what is explained, and by measurements: in one
// direction, and in both together.
func (h *hunt) tallies(explained []bool) (by []counts, single, double counts) {
	by = make([]counts, len(h.numbered))
	gone := func(numbers []int) bool {
		for _, i := range numbers {
			if explained[i] {
				return true
			}
		}
		return false
	}
	for first := 0; first < len(h.events); {
		end, flows := first, 0
		var with [len(symptoms)]int
		for ; end < len(h.events) && h.events[end].round == h.events[first].round; end++ {
			for _, f := range h.events[end].flows {
				flows++
				for s := range with {
					if f.shows.has(s) {
						with[s]++
					}
				}
			}
		}
		var placed symptomSet
		for s, n := range with {
			if flows < 4 || float64(n) <= common*float64(flows) {
				placed |= 1 << s
			}
		}
		events := h.events[first:end]
		first = end
		for j := range events {
			e := &events[j]
			if gone(e.shared) {
				continue
			}
			left, any := 0, symptomSet(0)
			for i := range e.flows {
				f := &e.flows[i]
				if gone(f.own) || h.onRoute(f) {
					continue
				}
				left++
				any |= f.shows
				single.add(f.shows, placed)
				for _, at := range f.own {
					by[at].add(f.shows, placed)
				}
			}
			if left == 0 {
				continue
			}
			double.add(any, placed)
			for _, at := range e.shared {
				by[at].add(any, placed)
			}
		}
	}
	return by, single, double
}

// onRoute reports whether a path that is accused explains a flow.
func (h *hunt) onRoute(f *flow) bool {
	if len(h.routes) == 0 || f.from < 0 {
		return false
	}
	return h.routes[route{h.switchOf(f.from), h.switchOf(f.to)}] > 0 || h.routes[route{-1 - f.from, -1 - f.to}] > 0
}

// add takes a measurement, of those symptoms that have a place in its round.
func (c *counts) add(shows, placed symptomSet) {
	for s := range c {
		if !placed.has(s) {
			continue
		}
		x := &c[s]
		x.of++
		if !shows.has(s) {
			continue
		}
		if x.with == 0 || x.of > x.trials+1 {
			x.spells++
		}
		x.with++
		x.trials = x.of
	}
}

// oddities returns the places that have symptoms, those with the lowest probability first, and how
// many questions were asked: places, times the symptoms that were seen often enough to accuse any (as
// Tarone, 1990: what cannot be significant needs no share of Alpha).
func (h *hunt) oddities(explained []bool) (all []oddity, questions int) {
	h.relative()
	by, single, double := h.tallies(explained)
	for i := range by {
		p := h.numbered[i]
		totals := &single
		if p.d == Both {
			totals = &double
		}
		for k, c := range by[i] {
			if c.of > 0 && totals[k].with >= minEvents {
				questions++
			}
			others, with := totals[k].of-c.of, totals[k].with-c.with
			if c.with < 2 || others == 0 {
				continue
			}
			rest := (float64(with) + 0.5) / float64(others+1)
			all = append(all, oddity{
				place: p, symptom: symptoms[k], count: c, rest: float64(with) / float64(others),
				p: stat.AtLeast(int(c.with), int(c.of), min(1, often*rest+seldom)),
			})
		}
	}
	slices.SortFunc(all, func(a, b oddity) int {
		return cmp.Or(cmp.Compare(a.p, b.p), cmp.Compare(len(b.d), len(a.d)), cmp.Compare(a.a, b.a), cmp.Compare(a.b, b.b))
	})
	return all, max(questions, 1)
}

// oddest returns the place and symptom with the lowest probability, if it is low enough, and
// whether any is so low that more measurements may make it so.
func (h *hunt) oddest(all []oddity, look, questions int) (best *oddity, more bool) {
	level := h.o.Alpha * eventPart / float64(look*(look+1)*questions)
	var waiting []*oddity // places of which only one disturbance is known yet
	for i := range all {
		o := &all[i]
		more = more || o.p <= math.Sqrt(level) || h.rounds < h.o.MaxRounds*2/3 && o.p*float64(questions) <= suspicion
		// One disturbance, however long, may be anybody's.
		switch {
		case o.p > level || o.with < minEvents:
		case o.spells < 2 && o.with < o.of:
			waiting = append(waiting, o)
		case slices.ContainsFunc(waiting, o.isOnly):
			// What is seen at the node is seen on one path.
		default:
			o.also = slices.DeleteFunc(at(all, o.place), func(x oddity) bool { return x.symptom == o.symptom })
			return o, more
		}
	}
	return nil, more
}

// isOnly reports whether nearly all that is seen at a place is seen on one path of it.
func (o *oddity) isOnly(path *oddity) bool {
	return path.symptom == o.symptom && path.b >= 0 && o.b == anyNode && o.with-path.with < 2 && o.explains(flow{from: path.a, to: path.b}, []int{path.a, path.b})
}

// suspicion is how many questions may be answered so by chance; with fewer, more is measured.
const suspicion = 0.4

// relative decides the symptoms that are relative to what is usual.
func (h *hunt) relative() {
	usual, filtered := h.usual(), h.filters()
	late := h.notLate(h.o.LateBy, func(e *event) time.Duration { return e.rtt })
	tail := h.notLate(10*h.o.LateBy, func(e *event) time.Duration { return e.tail })
	for i := range h.events {
		e := &h.events[i]
		c := h.classOf(e.group)
		for k := range e.flows {
			f := &e.flows[k]
			f.shows.set(Dropped, f.value > 0 && f.value < dropped*usual[c])
			f.shows.set(Stalled, f.packets.InRow >= 3 || f.packets.Silent && !filtered(e.group))
			f.shows.set(Delayed, e.rtt > 0 && e.rtt > late[c])
			f.shows.set(LongTail, e.tail > 0 && e.tail > tail[c])
		}
	}
}

// notLate returns how long something of a measurement (0: not known) may take in each class, and is
// not late: by so much more than twice what is usual.
func (h *hunt) notLate(by time.Duration, of func(*event) time.Duration) map[int]time.Duration {
	times, limit := map[int][]time.Duration{}, map[int]time.Duration{}
	for i := range h.events {
		if e := &h.events[i]; of(e) > 0 {
			c := h.classOf(e.group)
			times[c] = append(times[c], of(e))
		}
	}
	for c, t := range times {
		// A late node is in half of the pairs of four.
		slices.Sort(t)
		limit[c] = by + 2*t[len(t)/5]
	}
	return limit
}

// filters returns a function that reports whether the first node's small packets to the second are
// filtered, as most of those of the one, to the other, or from the one to the other were not heard of.
func (h *hunt) filters() func(group []int) bool {
	type end struct{ node, seat int }
	type tally struct{ silent, of int }
	ends, ways := map[end]tally{}, map[[2]int]tally{}
	for i := range h.events {
		e := &h.events[i]
		if len(e.group) != 2 {
			continue
		}
		silent, sent := 0, 0
		for _, f := range e.flows {
			if f.packets.Silent {
				silent = 1
			}
			sent += f.packets.Sent
		}
		if silent+sent == 0 {
			continue
		}
		way := ways[[2]int(e.group)]
		ways[[2]int(e.group)] = tally{way.silent + silent, way.of + 1}
		for seat, node := range e.group {
			t := ends[end{node, seat}]
			ends[end{node, seat}] = tally{t.silent + silent, t.of + 1}
		}
	}
	return func(group []int) bool {
		if len(group) != 2 {
			return false
		}
		way := ways[[2]int(group)]
		if way.of > 1 && way.silent == way.of {
			return true
		}
		for seat, node := range group {
			if t := ends[end{node, seat}]; 2*t.silent > t.of {
				return true
			}
		}
		return false
	}
}

// usual returns the median of the values of each class.
func (h *hunt) usual() map[int]float64 {
	of, out := map[int][]float64{}, map[int]float64{}
	for i := range h.events {
		e := &h.events[i]
		for _, f := range e.flows {
			if f.value > 0 {
				c := h.classOf(e.group)
				of[c] = append(of[c], f.value)
			}
		}
	}
	for c, values := range of {
		out[c] = stat.Median(values)
	}
	return out
}

func (h *hunt) classOf(group []int) int { return h.class(&value{group: group}) }

// eventsDecided reports whether enough was measured to know of each node, and among few nodes of
// each pair, whether it has a symptom more often than the rest.
func (h *hunt) eventsDecided() bool {
	if h.suspicious {
		return h.rounds >= h.mostRounds()
	}
	if n := len(h.living()); n >= 3 && n < fewNodes && h.o.GroupSize == 2 {
		// A round-robin has a round for each other node.
		return h.rounds >= min(minEvents*(n-1+n%2), h.o.MaxRounds)
	}
	return true
}

// patience is by how much more than MaxRounds a suspicion is followed.
const patience = 4
