package choose

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

// A Choice is how an operation on host memory is done.
type Choice struct {
	Algorithm string // name in coll/schedule
	Protocol  Protocol
	Channels  int   // as in schedule.Options
	Window    int64 // bytes of a message at most
}

// String returns a choice in the form of tables, without its window, which follows from the
// rest: "ring/LL:2".
func (k Choice) String() string { return fmt.Sprintf("%s/%v:%d", k.Algorithm, k.Protocol, k.Channels) }

// parseChoice parses the output of String.
func parseChoice(s string) (k Choice, err error) {
	name, err := Numbers(s, &k.Channels)
	algorithm, protocol, _ := strings.Cut(name, "/")
	here := protocols[:LL128]
	i := slices.Index(here, protocol)
	switch {
	case err != nil:
		return k, err
	case i < 0:
		return k, fmt.Errorf("%q: there is no protocol %q; there are %s", s, protocol, strings.Join(here, ", "))
	case k.Channels < 1:
		return k, fmt.Errorf("%q has no channels", s)
	}
	k.Algorithm, k.Protocol = algorithm, Protocol(i)
	return k, nil
}

// maxChannels is how many channels the model considers; more are used only if settings ask for
// them.
const maxChannels = 8

// A Tuner chooses how the operations of a communicator on host memory are done. All ranks come
// to the same choices. It may be used concurrently.
type Tuner struct {
	env                  Env
	ranks, groups, cores int
	local, net           Transport
	ways                 [op.NumCollectives][]way
	rules                [op.NumCollectives]func() []Rule[Choice] // computed at their first use, in less than a millisecond

	// Warning says which collectives NCCL_ALGO leaves no algorithm; "": none.
	Warning string
}

// A way is an algorithm that settings allow.
type way struct {
	algorithm string
	form
}

// Tuner creates the tuner of an Env. A collective for which NCCL_ALGO leaves no algorithm may use
// all, and Tuner.Warning says so.
func (e *Env) Tuner() (*Tuner, error) {
	t := &Tuner{env: *e, groups: len(e.Hosts), cores: e.Cores, local: SHM, net: e.NetCost}
	for _, g := range e.Hosts {
		t.ranks += len(g)
	}
	if e.SHMDisable {
		t.local = e.NetCost
	}
	if t.ranks < 1 || t.local.Name == "" || t.groups > 1 && t.net.Name == "" {
		return nil, fmt.Errorf("tuner: %d ranks of %d hosts over %q and %q", t.ranks, t.groups, t.local.Name, t.net.Name)
	}
	var free []string // collectives that NCCL_ALGO leaves no algorithm
	for c := range op.NumCollectives {
		t.rules[c] = sync.OnceValue(func() []Rule[Choice] { return t.fill(c) })
		algorithms, limited := t.algorithms(c)
		if !limited {
			free = append(free, c.String())
		}
		for _, a := range algorithms {
			t.ways[c] = append(t.ways[c], way{a, t.form(c, a)})
		}
	}
	if len(free) > 0 {
		t.Warning = fmt.Sprintf("NCCL_ALGO=%v leaves no algorithm for %s%s; all may run", t.env.Algo, strings.Join(free, ", "), t.with())
	}
	return t, nil
}

// Pick returns the choice for an operation with a count of the given bytes. Except for the
// first operation of a collective it allocates nothing, and takes some tens of nanoseconds.
func (t *Tuner) Pick(c op.Collective, bytes int) Choice {
	rules := t.rules[c]()
	bytes *= c.Longest(t.ranks)
	i, _ := slices.BinarySearchFunc(rules, bytes, func(r Rule[Choice], b int) int { return cmp.Compare(r.UpTo, b) })
	return rules[min(i, len(rules)-1)].C
}

// fill computes the rules of a collective: the choice for a grid of sizes, with equal
// neighbours joined. Sizes are of the vector for AllReduce, Broadcast, Reduce and SendRecv, of
// all ranks' blocks together for the others.
func (t *Tuner) fill(c op.Collective) []Rule[Choice] {
	edges := []int64{0}
	for b := int64(256); b <= 1<<36; b *= 2 {
		edges = append(edges, b, b+b/2)
	}
	for _, e := range []int64{t.env.SingleRingThreshold, t.env.LLThreshold} {
		if e > 0 {
			edges = append(edges, e)
		}
	}
	slices.Sort(edges)
	edges = append(slices.Compact(edges), math.MaxInt64)
	measured := t.series(c)
	var rules []Rule[Choice]
	for i, from := range edges[:len(edges)-1] {
		choice := t.best(c, measured, from, max(128, from+from/5)) // a size in the middle represents all
		if n := len(rules); n > 0 && rules[n-1].C == choice {
			rules[n-1].UpTo = int(edges[i+1] - 1)
		} else {
			rules = append(rules, Rule[Choice]{int(edges[i+1] - 1), choice})
		}
	}
	return rules
}

// A candidate is a choice with its time in seconds, from the model or as corrected by
// measurements.
type candidate struct {
	Choice
	seconds  float64
	measured bool
}

// modelMargin is how many times faster, in the model, an unmeasured choice must be than a
// measured one to be preferred: the model may be wrong by that much.
const modelMargin = 3

// best returns the choice for sizes from from on, one of which is bytes. A measured choice is
// preferred to an unmeasured one, unless the latter is faster by more than modelMargin.
func (t *Tuner) best(c op.Collective, measured series, from, bytes int64) Choice {
	var best [2]candidate // not measured, measured
	for i := range best {
		best[i].seconds = math.Inf(1)
	}
	t.candidates(c, measured, from, bytes, func(k candidate) {
		b := &best[0]
		if k.measured {
			b = &best[1]
		}
		if k.seconds < b.seconds {
			*b = k
		}
	})
	if best[1].seconds <= modelMargin*best[0].seconds {
		return best[1].Choice
	}
	return best[0].Choice
}

// candidates passes to each all choices that settings allow for sizes from from on, one of
// which is bytes.
func (t *Tuner) candidates(c op.Collective, measured series, from, bytes int64, each func(candidate)) {
	protocols := t.protocols(c, from)
	for _, w := range t.ways[c] {
		channels := t.channels(w.algorithm, from)
		for _, p := range protocols {
			for _, n := range channels {
				k := Choice{Algorithm: w.algorithm, Protocol: p, Channels: n}
				factor, ok := measured.factor(k, bytes)
				k, seconds := t.cost(w.form, k, bytes, t.env.Slot)
				each(candidate{k, seconds * factor, ok})
			}
		}
	}
}

// Candidates returns the choices that settings allow for an operation of the given bytes, the
// fastest by the tuner's estimate first. These are what a measurement should try.
func (t *Tuner) Candidates(c op.Collective, bytes int64) (out []Choice) {
	var all []candidate
	t.candidates(c, t.series(c), bytes, bytes, func(k candidate) { all = append(all, k) })
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.seconds, b.seconds) })
	for _, k := range all {
		out = append(out, k.Choice)
	}
	return out
}

// Place returns the place that measurements of a collective belong to.
func (t *Tuner) Place(c op.Collective) Place {
	p := Place{Local: t.local.Name, Ranks: t.ranks, Crowded: t.ranks > t.cores*t.groups && t.cores > 0, Collective: c.String()}
	if t.groups > 1 {
		p.Groups, p.Net = t.groups, t.net.Name
	}
	return p
}

// A series holds, for each choice, how wrong the model is at the measured sizes: measured over
// modelled time.
type series map[Choice][]sample

type sample struct{ size, wrong float64 } // logarithms of both

// measuredSlot is the longest message that the model assumes in a comparison with
// measurements, whatever the communicator's longest message is.
const measuredSlot = 512 << 10

// series returns the corrections of the model for a collective.
func (t *Tuner) series(c op.Collective) series {
	s := series{}
	for _, r := range t.env.Tuning.Tables.rows(t.Place(c)) {
		k, err := parseChoice(r.Choice)
		if err != nil || forms[c][k.Algorithm] == nil { // validate has rejected these
			continue
		}
		for _, p := range r.Took {
			_, seconds := t.cost(t.form(c, k.Algorithm), k, p[0], measuredSlot)
			s[k] = append(s[k], sample{ln(float64(max(1, p[0]))), ln(float64(p[1]) * 1e-9 / seconds)})
		}
	}
	return s
}

// factor returns the factor for the model's time of a choice: how wrong the model was at the
// nearest sizes. Between two sizes it interpolates, in logarithms.
func (s series) factor(choice Choice, bytes int64) (factor float64, measured bool) {
	points := s[choice]
	if len(points) == 0 {
		return 1, false
	}
	at := ln(float64(max(1, bytes)))
	i := slices.IndexFunc(points, func(p sample) bool { return p.size >= at })
	switch i {
	case 0:
		return exp(points[0].wrong), true
	case -1:
		return exp(points[len(points)-1].wrong), true
	}
	a, b := points[i-1], points[i]
	x := (at - a.size) / max(b.size-a.size, 1e-9)
	return exp(float64((1-x)*a.wrong) + float64(x*b.wrong)), true
}

// algorithms returns the algorithms that have a form and may be used, the plain ones first so
// that they win ties. limited is false if NCCL_ALGO leaves none of them, and they are returned all.
func (t *Tuner) algorithms(c op.Collective) (allowed []string, limited bool) {
	var all []string
	for _, a := range schedule.Algorithms(c) {
		if forms[c][a] == nil || a == schedule.Hierarchical && (t.groups == 1 || t.groups == t.ranks) {
			continue
		}
		if t.env.SameBits && !schedule.InOrder(c, a) {
			continue
		}
		all = append(all, a)
		if t.env.Algo.Allows(c, a) || t.env.CollNetOnly(c) {
			allowed = append(allowed, a)
		}
	}
	if limited = len(allowed) > 0; !limited {
		allowed = all
	}
	if len(t.env.Rings) > 0 && slices.Contains(allowed, schedule.Ring) {
		allowed = []string{schedule.Ring}
	}
	return allowed, limited
}

// with names what else limits the algorithms.
func (t *Tuner) with() string {
	if t.env.SameBits {
		return " with ASSAY_SAME_BITS=1"
	}
	return ""
}

// CollNetOnly reports whether NCCL_ALGO allows a collective only the network's own reductions.
// Where these are not possible, all algorithms are allowed, since the operation has to be
// done.
func (e *Env) CollNetOnly(c op.Collective) bool {
	return e.Algo.Allows(c, schedule.CollNet) &&
		!slices.ContainsFunc(schedule.Algorithms(c), func(a string) bool { return a != schedule.CollNet && e.Algo.Allows(c, a) })
}

// protocols returns the protocols that may be used; NCCL_PROTO leaves at least one.
// NCCL_LL_THRESHOLD takes precedence over the model.
func (t *Tuner) protocols(c op.Collective, bytes int64) (allowed []Protocol) {
	for _, p := range []Protocol{LL, Simple} {
		if t.env.Proto.Allows(c, p.String()) {
			allowed = append(allowed, p)
		}
	}
	if t.env.LLThreshold >= 0 {
		want := Simple
		if bytes < t.env.LLThreshold {
			want = LL
		}
		if slices.Contains(allowed, want) {
			return []Protocol{want}
		}
	}
	return allowed
}

// channels returns the numbers of channels to try: powers of two within the limits. Operations
// below NCCL_SINGLE_RING_THRESHOLD have one channel.
func (t *Tuner) channels(algorithm string, bytes int64) []int {
	if bytes < t.env.SingleRingThreshold {
		return []int{1}
	}
	limit := func(n int) int { return min(max(n, t.env.MinChannels), t.env.Channels()) }
	if n := len(t.env.Rings); n > 0 && algorithm == schedule.Ring {
		return []int{limit(n)}
	}
	var list []int
	for n := 1; n <= maxChannels; n *= 2 {
		if m := limit(n); !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

func (t *Tuner) form(c op.Collective, algorithm string) form {
	f := forms[c][algorithm](newShape(t.ranks, t.groups))
	if !c.Reduces() {
		f.reduced = 0
	}
	return f
}

// cost completes a choice with the best window of at most slot bytes, and returns how long it
// takes by the model, in seconds.
func (t *Tuner) cost(f form, k Choice, bytes int64, slot int) (Choice, float64) {
	w := plan{form: f, bytes: float64(bytes), channels: float64(k.Channels), protocol: k.Protocol}
	if k.Algorithm == schedule.DoubleTree {
		w.channels *= 2 // one for each tree
	}
	k.Window = roundWindow(int64(w.best(t.local, t.net, float64(slot))))
	w.window = float64(k.Window)
	crowded := 1.0 // ranks per core
	if t.cores > 0 {
		crowded = float64(t.ranks) / float64(t.groups) / float64(t.cores)
	}
	return k, w.time(t.local, t.net, crowded)
}

// roundWindow rounds windows down to powers of two: few and aligned sizes.
func roundWindow(w int64) int64 {
	if w < 2 {
		return 1
	}
	return 1 << (bits.Len64(uint64(w)) - 1)
}
