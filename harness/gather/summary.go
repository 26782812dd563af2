package gather

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
)

const (
	// worstKept is how many of the worst results of a check a summary lists.
	worstKept = 16
	// maxChecks bounds a summary's checks.
	maxChecks = 4096
	maxReason = 200
)

// A Summary combines the certificates of any number of ranks. Counts are exact, quantiles are
// within stat.SketchError. The order of merging does not change the result.
type Summary struct {
	Ranks    int                    `json:"ranks"`
	Verdicts map[result.Verdict]int `json:"verdicts"` // of whole certificates
	Checks   map[string]*Check      `json:"checks"`   // by id; with a quantity, by "id quantity"
	Missing  []Missing              `json:"missing,omitempty"`
}

// A Check is one check over all ranks.
type Check struct {
	Verdicts map[result.Verdict]int `json:"verdicts"`
	Unit     string                 `json:"unit,omitempty"`
	Values   *stat.Sketch           `json:"values,omitempty"`
	Worst    []Worst                `json:"worst,omitempty"` // the worst first
}

// A Worst is one of the worst results of a check.
type Worst struct {
	Rank    int            `json:"rank"`
	Node    string         `json:"node,omitempty"`
	Object  string         `json:"object,omitempty"`
	Verdict result.Verdict `json:"verdict"`
	Reason  string         `json:"reason,omitempty"`
	Value   float64        `json:"value,omitempty"`
	// Score orders values: the lower, the worse. It is the value or, where a value is expected,
	// the ratio to that; it is negative where less is better.
	Score float64 `json:"score,omitempty"`
}

// Summarize returns the summary of a rank's certificate.
func Summarize(rank int, s *certificate.Statement) *Summary {
	p := &s.Predicate
	out := &Summary{Ranks: 1, Verdicts: map[result.Verdict]int{p.Verdict: 1}, Checks: map[string]*Check{}}
	node := ""
	if p.Node != nil {
		node = p.Node.Name
	}
	for _, r := range p.Results {
		out.count(r.ID, better(r.ID, "", r.Measured), Worst{Rank: rank, Node: node, Verdict: r.Verdict, Reason: r.Reason}, r.Measured)
		for _, o := range r.Objects {
			if o.Measured == nil {
				continue
			}
			id, name := r.ID+" "+cmp.Or(o.Quantity, "objects"), o.Name
			if o.Peer != "" {
				name += " → " + o.Peer
			}
			out.count(id, better(r.ID, o.Quantity, o.Measured), Worst{Rank: rank, Node: node, Object: name, Verdict: o.Verdict, Reason: o.Reason}, o.Measured)
		}
	}
	return out
}

func better(check, name string, m *result.Measurement) result.Better {
	if m == nil {
		return result.Unknown
	}
	return result.BetterOf(check, name, m.Unit, m.LimitKind())
}

func (s *Summary) count(id string, better result.Better, w Worst, m *result.Measurement) {
	c := s.Checks[id]
	if c == nil {
		c = &Check{Verdicts: map[result.Verdict]int{}}
		s.Checks[id] = c
	}
	c.Verdicts[w.Verdict]++
	w.Reason = w.Reason[:min(len(w.Reason), maxReason)]
	if m != nil {
		w.Value, w.Score = m.Value, cmp.Or(m.Ratio, m.Value)
		if better == result.Lower {
			w.Score = -w.Score
		}
		c.Unit = cmp.Or(c.Unit, m.Unit)
		// Values in another unit, or below zero, are counted and judged like all others, but a
		// distribution of them would mean nothing.
		if c.Unit == m.Unit && m.Value >= 0 {
			if c.Values == nil {
				c.Values = &stat.Sketch{}
			}
			c.Values.Add(m.Value)
		}
	}
	if m != nil || w.Verdict != result.Pass && w.Verdict != result.Skip {
		c.keep(w)
	}
}

// keep inserts w if it is among the worst.
func (c *Check) keep(w Worst) { c.keepAll([]Worst{w}) }

// keepAll inserts the elements of list, which is sorted, that are among the worst.
func (c *Check) keepAll(list []Worst) {
	if n := len(c.Worst); len(list) == 0 || n == worstKept && compareWorst(&c.Worst[n-1], &list[0]) <= 0 {
		return
	}
	var old [worstKept]Worst
	mine := old[:copy(old[:], c.Worst)]
	out := slices.Grow(c.Worst[:0], min(len(mine)+len(list), worstKept))
	for len(out) < worstKept && len(mine)+len(list) > 0 {
		if len(list) == 0 || len(mine) > 0 && compareWorst(&mine[0], &list[0]) <= 0 {
			out, mine = append(out, mine[0]), mine[1:]
		} else {
			out, list = append(out, list[0]), list[1:]
		}
	}
	c.Worst = out
}

// severity returns a verdict's index among all verdicts, the worst first.
func severity(v result.Verdict) int { return slices.Index(verdicts, v) }

func compareWorst(a, b *Worst) int {
	return cmp.Or(cmp.Compare(severity(a.Verdict), severity(b.Verdict)), cmp.Compare(a.Score, b.Score),
		cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Reason, b.Reason))
}

// Merge adds another summary.
func (s *Summary) Merge(o *Summary) {
	s.Ranks += o.Ranks
	if s.Verdicts == nil {
		s.Verdicts, s.Checks = map[result.Verdict]int{}, map[string]*Check{}
	}
	for v, n := range o.Verdicts {
		s.Verdicts[v] += n
	}
	for id, c := range o.Checks {
		mine := s.Checks[id]
		if mine == nil {
			mine = &Check{Verdicts: map[result.Verdict]int{}, Unit: c.Unit}
			s.Checks[id] = mine
		}
		for v, n := range c.Verdicts {
			mine.Verdicts[v] += n
		}
		mine.Unit = cmp.Or(mine.Unit, c.Unit)
		if c.Values != nil {
			if mine.Values == nil {
				mine.Values = &stat.Sketch{}
			}
			mine.Values.Merge(c.Values)
		}
		mine.keepAll(c.Worst)
	}
	s.Missing = append(s.Missing, o.Missing...)
}

// Verdict is the verdict of all ranks together: a missing rank is an error, unless a check
// failed.
func (s *Summary) Verdict() result.Verdict {
	n := s.Verdicts
	switch {
	case n[result.Fail] > 0:
		return result.Fail
	case n[result.Error]+len(s.Missing) > 0:
		return result.Error
	case n[result.Pass]+n[result.Warn] > 0:
		return result.Pass
	}
	return result.Skip
}

// validate checks a summary that was received.
func (s *Summary) validate() error {
	if len(s.Checks) > maxChecks || len(s.Missing) > maxRanks {
		return fmt.Errorf("a summary of %d checks with %d missing ranks", len(s.Checks), len(s.Missing))
	}
	if err := counts(s.Verdicts, s.Ranks); err != nil {
		return err
	}
	for id, c := range s.Checks {
		if c == nil || len(c.Worst) > worstKept {
			return fmt.Errorf("check %q: it is empty, or names too many of the worst", id)
		}
		if err := counts(c.Verdicts, -1); err != nil {
			return fmt.Errorf("check %q: %w", id, err)
		}
		if !slices.IsSortedFunc(c.Worst, func(a, b Worst) int { return compareWorst(&a, &b) }) {
			return fmt.Errorf("check %q: the worst are not in order", id)
		}
		if c.Values != nil {
			if err := c.Values.Validate(); err != nil {
				return fmt.Errorf("check %q: %w", id, err)
			}
		}
	}
	return nil
}

func counts(n map[result.Verdict]int, want int) error {
	total := 0
	for v, k := range n {
		if severity(v) < 0 || k < 0 || k > 1<<40 {
			return fmt.Errorf("%d of the verdict %q", k, v)
		}
		total += k
	}
	if want >= 0 && total != want {
		return fmt.Errorf("%d verdicts of %d ranks", total, want)
	}
	return nil
}
