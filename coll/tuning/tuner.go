package tuning

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

// A Choice is how to run an operation.
type Choice struct {
	Algorithm string // name in coll/schedule
	Protocol  Protocol
	Channels  int   // as schedule.Options has it
	Window    int64 // bytes of a message at most
}

// An Env is what a tuner is made for: a communicator.
type Env struct {
	Ranks  int
	Groups int       // nodes with equally many ranks, nearly; 0: 1
	Cores  int       // that the ranks of a node share; 0: one each
	Local  Transport // within a group
	Net    Transport // between groups; needed if there are several
}

// crowded reports whether a node has more ranks than processors for them.
func (e Env) crowded() bool { return e.Cores > 0 && e.Ranks > e.Cores*max(1, e.Groups) }

// A Filter says what a collective may use; knob.Filter is one. Names of
// algorithms are coll/schedule's, of protocols "ll" and "simple".
type Filter interface {
	Allows(c op.Collective, name string) bool
}

// Overrides are what the user decided, by NCCL's knobs.
type Overrides struct {
	Algo  Filter // NCCL_ALGO; nil: all
	Proto Filter // NCCL_PROTO; nil: all

	// Rings are those of NCCL_RINGS for this communicator: where there is a
	// ring algorithm, and Algo allows it, it is used, with a channel each.
	Rings [][]int

	MinChannels int // NCCL_MIN_NRINGS and newer names; 0: no limit
	MaxChannels int // NCCL_MAX_NRINGS and newer names; 0: no limit

	BuffSize int64 // NCCL_BUFFSIZE: bytes of a connection, 8 slots; 0: 4 MiB

	// Operations of fewer bytes use one channel (NCCL_SINGLE_RING_THRESHOLD),
	// or LL, and larger ones Simple (NCCL_LL_THRESHOLD). They win over the
	// model and MinChannels. Negative: not set.
	SingleRingThreshold int64
	LLThreshold         int64
}

// NoOverrides leaves all to the model.
var NoOverrides = Overrides{SingleRingThreshold: -1, LLThreshold: -1}

const (
	defaultBuffSize = 4 * mib
	maxChannels     = 8 // that the model considers; more are used only when asked for
)

// A Tuner chooses for communicators of one Env. Many goroutines may use it.
type Tuner struct {
	rules    func() *Rules // works them out when it is first called
	env      Env
	over     Overrides
	measured series
}

// Rules are a Tuner's choices, by collective, as plain data: costs are
// floating-point numbers, which another processor or compiler may round in
// another way, so that ranks which each worked them out could differ. One rank
// does, and hands them to the others.
type Rules [op.NumCollectives][]Rule

// A Rule holds for operations of fewer than Below bytes, and not for what the
// rule before it holds for.
type Rule struct {
	Below int64 `json:"below"`
	Choice
}

// NewTuner computes the choices of a communicator. m may be nil. It fails if
// the overrides leave nothing for some collective that the model knows.
func NewTuner(env Env, over Overrides, m *Measurements) (*Tuner, error) {
	env.Groups, env.Cores = max(1, env.Groups), max(0, env.Cores)
	switch {
	case env.Ranks < 1 || env.Groups > env.Ranks:
		return nil, fmt.Errorf("tuner: %d ranks in %d groups", env.Ranks, env.Groups)
	case env.Local.Simple.Rate <= 0 || env.Local.LL.Rate <= 0:
		return nil, fmt.Errorf("tuner: the local transport %q has no rate", env.Local.Name)
	case env.Groups > 1 && (env.Net.Simple.Rate <= 0 || env.Net.LL.Rate <= 0):
		return nil, fmt.Errorf("tuner: %d groups, and the transport %q between them has no rate", env.Groups, env.Net.Name)
	case over.MinChannels < 0 || over.MaxChannels < 0 || over.BuffSize < 0:
		return nil, fmt.Errorf("tuner: a limit is negative")
	case over.MaxChannels > 0 && over.MinChannels > over.MaxChannels:
		return nil, fmt.Errorf("tuner: at least %d and at most %d channels; raise NCCL_MAX_NRINGS or lower NCCL_MIN_NRINGS", over.MinChannels, over.MaxChannels)
	}
	t := &Tuner{env: env, over: over, measured: m.index()}
	t.rules = sync.OnceValue(func() *Rules {
		var all Rules
		for c := range op.NumCollectives {
			all[c] = t.fill(c)
		}
		return &all
	})
	for c := range op.NumCollectives {
		if _, err := t.algorithms(c); err != nil {
			return nil, err
		}
		if _, err := t.protocols(c, 0); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Rules returns the choices for all collectives. The first call takes some
// milliseconds. They are shared and not changed.
func (t *Tuner) Rules() *Rules { return t.rules() }

// Validate refuses what Pick cannot choose from.
func (r *Rules) Validate() error {
	for c, rules := range r {
		for i, rule := range rules {
			if rule.Algorithm == "" || rule.Channels < 1 || rule.Window < 1 || i > 0 && rule.Below <= rules[i-1].Below {
				return fmt.Errorf("rule %d for %v is damaged: %+v", i+1, op.Collective(c), rule)
			}
		}
		if len(rules) == 0 {
			return fmt.Errorf("there is no rule for %v", op.Collective(c))
		}
	}
	return nil
}

// Pick returns how to run an operation of so many bytes: of the vector for
// AllReduce, Broadcast, Reduce and SendRecv, of all ranks' blocks together for
// the others. It allocates nothing and takes some tens of nanoseconds. It
// panics if there is no such collective.
func (r *Rules) Pick(c op.Collective, bytes int64) Choice {
	rules := r[c]
	lo, hi := 0, len(rules)-1
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); bytes < rules[mid].Below {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return rules[lo].Choice
}

// fill makes the rules of a collective: the choice for a grid of sizes, equal
// neighbours joined.
func (t *Tuner) fill(c op.Collective) []Rule {
	edges := []int64{0}
	for b := int64(256); b <= 1<<36; b *= 2 {
		edges = append(edges, b, b+b/2)
	}
	for _, e := range []int64{t.over.SingleRingThreshold, t.over.LLThreshold} {
		if e > 0 {
			edges = append(edges, e)
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	rules := make([]Rule, 0, len(edges))
	for i, from := range edges {
		below := int64(math.MaxInt64)
		if i+1 < len(edges) {
			below = edges[i+1]
		}
		choice := t.choose(c, from, max(128, from+from/5)) // a size in the middle stands for all
		if n := len(rules); n > 0 && rules[n-1].Choice == choice {
			rules[n-1].Below = below
		} else {
			rules = append(rules, Rule{below, choice})
		}
	}
	return rules
}

// flattery is how far the model may be wrong in favour of what nobody measured.
const flattery = 3

// choose finds the choice for sizes from from, of which one is bytes, by
// trying all that is allowed. NewTuner made sure that something is. What was
// measured goes before what was not, unless the model has that far ahead.
func (t *Tuner) choose(c op.Collective, from, bytes int64) Choice {
	var best [2]Choice // not measured, measured
	least := [2]float64{math.Inf(1), math.Inf(1)}
	algorithms, _ := t.algorithms(c)
	protocols, _ := t.protocols(c, from)
	for _, a := range algorithms {
		f, channels := t.form(c, a), t.channels(a, from)
		for _, p := range protocols {
			for _, n := range channels {
				choice, time := t.cost(f, c, a, p, n, bytes)
				k := 0
				if _, ok := t.measured[PointOf(t.env, c, choice, 0, 0)]; ok {
					k = 1
				}
				if time < least[k] {
					best[k], least[k] = choice, time
				}
			}
		}
	}
	if least[1] <= flattery*least[0] {
		return best[1]
	}
	return best[0]
}

// Candidates are the choices that the tuner reckons fastest for an operation,
// the best first, at most n: what a short measurement should try.
func (t *Tuner) Candidates(c op.Collective, bytes int64, n int) []Choice {
	type candidate struct {
		Choice
		time float64
	}
	var all []candidate
	algorithms, _ := t.algorithms(c)
	protocols, _ := t.protocols(c, bytes)
	for _, a := range algorithms {
		for _, p := range protocols {
			for _, k := range t.channels(a, bytes) {
				choice, time := t.cost(t.form(c, a), c, a, p, k, bytes)
				all = append(all, candidate{choice, time})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.time, b.time) })
	var out []Choice
	for _, a := range all[:min(n, len(all))] {
		out = append(out, a.Choice)
	}
	return out
}

// algorithms are those with a form that may be used, the plain ones first so
// that they win ties.
func (t *Tuner) algorithms(c op.Collective) ([]string, error) {
	var all, allowed []string
	for _, a := range schedule.Algorithms(c) {
		if forms[c][a] == nil || a == schedule.Hierarchical && (t.env.Groups == 1 || t.env.Groups == t.env.Ranks) {
			continue
		}
		all = append(all, a)
		if t.over.Algo == nil || t.over.Algo.Allows(c, a) {
			allowed = append(allowed, a)
		}
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("NCCL_ALGO leaves no algorithm for %v here; there are %s", c, strings.Join(all, ", "))
	}
	if len(t.over.Rings) > 0 && slices.Contains(allowed, schedule.Ring) {
		return []string{schedule.Ring}, nil
	}
	return allowed, nil
}

// Protocols names the protocols that overrides may name.
func Protocols() []string { return []string{"ll", "simple"} }

func (t *Tuner) protocols(c op.Collective, bytes int64) ([]Protocol, error) {
	var allowed []Protocol
	for _, p := range []Protocol{LL, Simple} {
		if t.over.Proto == nil || t.over.Proto.Allows(c, strings.ToLower(p.String())) {
			allowed = append(allowed, p)
		}
	}
	if len(allowed) == 0 {
		return nil, fmt.Errorf("NCCL_PROTO leaves no protocol for %v; there are %s", c, strings.Join(Protocols(), ", "))
	}
	if t.over.LLThreshold >= 0 {
		want := Simple
		if bytes < t.over.LLThreshold {
			want = LL
		}
		if slices.Contains(allowed, want) {
			return []Protocol{want}, nil
		}
	}
	return allowed, nil
}

// channels are the numbers to try: powers of two within the limits.
func (t *Tuner) channels(algorithm string, bytes int64) []int {
	if bytes < t.over.SingleRingThreshold {
		return []int{1}
	}
	if n := len(t.over.Rings); n > 0 && algorithm == schedule.Ring {
		return []int{t.limit(n)}
	}
	var list []int
	for n := 1; n <= maxChannels; n *= 2 {
		if m := t.limit(n); !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

func (t *Tuner) limit(n int) int {
	n = max(n, t.over.MinChannels)
	if t.over.MaxChannels > 0 {
		n = min(n, t.over.MaxChannels)
	}
	return n
}

// slot is the size of the largest message.
func (t *Tuner) slot() int64 {
	size := t.over.BuffSize
	if size == 0 {
		size = defaultBuffSize
	}
	size /= ncclSteps
	for _, l := range []Transport{t.env.Local, t.env.Net} {
		if l.MaxSlot > 0 {
			size = min(size, l.MaxSlot)
		}
	}
	return max(1, size)
}

func (t *Tuner) form(c op.Collective, algorithm string) form {
	return forms[c][algorithm](newShape(t.env.Ranks, t.env.Groups))
}

// cost completes a choice with the window that suits, and says how long it
// takes, in seconds.
func (t *Tuner) cost(f form, c op.Collective, algorithm string, p Protocol, channels int, bytes int64) (Choice, float64) {
	w := plan{form: f, bytes: float64(bytes), channels: float64(channels), protocol: p}
	if algorithm == schedule.DoubleTree {
		w.channels *= 2 // one for each tree
	}
	w.window = w.best(t.env.Local, t.env.Net, float64(t.slot()))
	window := roundWindow(int64(w.window))
	choice := Choice{Algorithm: algorithm, Protocol: p, Channels: channels, Window: min(window, t.slot())}
	w.window = float64(choice.Window)
	crowded := 1.0
	if t.env.Cores > 0 {
		crowded = float64(t.env.Ranks) / float64(t.env.Groups) / float64(t.env.Cores)
	}
	seconds := w.time(t.env.Local, t.env.Net, crowded)
	return choice, t.measured.correct(t.env, c, choice, bytes, seconds)
}

// roundWindow makes windows powers of two: few sizes, aligned ones.
func roundWindow(w int64) int64 {
	if w < 2 {
		return 1
	}
	return 1 << (bits.Len64(uint64(w)) - 1)
}

// Estimate says what the tuner reckons an operation to take with a choice, in
// seconds. It is the model's, corrected by measurements.
func (t *Tuner) Estimate(c op.Collective, choice Choice, bytes int64) (float64, bool) {
	if forms[c][choice.Algorithm] == nil {
		return 0, false
	}
	_, s := t.cost(t.form(c, choice.Algorithm), c, choice.Algorithm, choice.Protocol, choice.Channels, bytes)
	return s, true
}
