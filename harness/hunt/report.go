package hunt

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/stat"
)

// A Verdict is the outcome of a hunt.
type Verdict string

// The verdicts.
const (
	Clean     Verdict = "clean"     // no node is Find slower than the rest
	Found     Verdict = "found"     // there are suspects, or dead nodes
	Undecided Verdict = "undecided" // no node is accused, and not all are cleared
)

// A Kind says what a suspect is.
type Kind string

// The kinds of suspects.
const (
	Slow        Kind = "slow"        // it is slower with every partner
	Lossy       Kind = "lossy"       // it loses packets, or its speed varies widely over time
	SlowPath    Kind = "path"        // nodes that are well among themselves are slow with others, or a way from one to another is
	Inside      Kind = "inside"      // nodes of one switch are slow with one another, and well with others
	Beyond      Kind = "beyond"      // nodes of several switches are slow beyond them: a spine, say
	Failing     Kind = "failing"     // nothing comes through
	Flapping    Kind = "flapping"    // it comes and goes
	Late        Kind = "late"        // round trips take longer
	Duplicating Kind = "duplicating" // packets arrive twice
	Reordering  Kind = "reordering"  // packets arrive in another order
)

// A Direction is the direction in which a suspect is slow.
type Direction string

// The directions.
const (
	Both      Direction = "both" // also for values without a direction
	Sending   Direction = "sending"
	Receiving Direction = "receiving"
)

// A Report is the result of a hunt.
type Report struct {
	Verdict   Verdict   `json:"verdict"`
	Nodes     int       `json:"nodes"`
	Suspects  []Suspect `json:"suspects,omitempty"` // the worst first
	Dead      []Death   `json:"dead,omitempty"`     // in the order of death
	Undecided []int     `json:"undecided,omitempty"`
	Ranking   []Rank    `json:"ranking"` // the slowest first; without dead nodes

	Alpha float64 `json:"alpha"` // false-positive rate, at most
	Beta  float64 `json:"beta"`  // probability of clearing a node that is Find slower, at most
	Least float64 `json:"least"` // smaller differences accuse no node
	Find  float64 `json:"find"`  // larger ones would have been found, if no node is undecided

	Excluded Excluded `json:"excluded"`

	Rounds       int    `json:"rounds"`
	Measurements int    `json:"measurements"`
	Seed         uint64 `json:"seed"`
	// Note is additional information for the reader.
	Note string `json:"note,omitempty"`
}

// A Suspect is a node or a path that is slower than the rest, or loses packets.
type Suspect struct {
	Kind      Kind      `json:"kind"`
	Nodes     []int     `json:"nodes"`
	Peers     []int     `json:"peers,omitempty"` // the path's other end; none: all other nodes
	Direction Direction `json:"direction"`
	Slower    bool      `json:"slower"`           // accused because of its bandwidth; false: only because of its losses
	Ratio     float64   `json:"ratio"`            // median of its values, over what is usual
	Resent    float64   `json:"resent,omitempty"` // median share of what was sent again
	P         float64   `json:"p"`                // probability of these or worse ranks if it is at most Least slower
	Evidence  []Value   `json:"evidence"`         // the newest first
	Symptoms  []Seen    `json:"symptoms,omitempty"`
}

// Seen is how often measurements of a suspect showed a symptom.
type Seen struct {
	Symptom Symptom `json:"symptom"`
	With    int     `json:"with"`
	Of      int     `json:"of"`   // measurements
	Rest    float64 `json:"rest"` // share of the measurements of the others that showed it
	P       float64 `json:"p"`    // probability of so many, if it had it three times as often as the rest
}

// A Value is one measurement.
type Value struct {
	Round  int     `json:"round"`
	Group  []int   `json:"group"` // with a direction: from, to
	Value  float64 `json:"value"`
	Usual  float64 `json:"usual"` // the median of its class in the same rounds
	Resent float64 `json:"resent,omitempty"`
}

// A Death is a node that stopped answering.
type Death struct {
	Node   int    `json:"node"`
	Round  int    `json:"round"`
	Reason string `json:"reason"`
}

// A Rank is a node's position among all.
type Rank struct {
	Node   int     `json:"node"`
	Ratio  float64 `json:"ratio"` // median of its values over what is usual, in its worse direction
	Low    float64 `json:"low"`   // confidence interval of Ratio, 95 % with six values or more
	High   float64 `json:"high"`
	Values int     `json:"values"`
}

// maxEvidence is how many values of a suspect a report quotes.
const maxEvidence = 12

func (h *hunt) report() *Report {
	r := &Report{
		Nodes: h.n, Dead: h.dead, Suspects: h.suspects, Undecided: h.undecided(),
		Alpha: h.o.Alpha, Beta: h.o.Beta, Least: -math.Expm1(-h.least), Find: -math.Expm1(-h.find),
		Rounds: h.rounds, Measurements: h.flows, Seed: h.o.Seed,
	}
	if h.seen != nil {
		for _, node := range h.living() {
			slow, lossy := h.accused[node], h.loss.accused[node]
			if h.excused[node] {
				slow = nil
			}
			if slow != nil || lossy != nil {
				r.Suspects = append(r.Suspects, h.suspect(node, slow, lossy))
			}
			if rank, ok := h.rank(node); ok {
				r.Ranking = append(r.Ranking, rank)
			}
		}
		for _, q := range sortedRoutes(h.routes) {
			if q.from >= 0 && (h.mostAccused(h.plan.switches[q.from], nil) || h.mostAccused(h.plan.switches[q.to], nil)) {
				continue // its nodes, or their path to all others, explain it
			}
			r.Suspects = append(r.Suspects, h.suspectRoute(q))
		}
	}
	r.Suspects = append(r.Suspects, h.oddSuspects(r.Suspects)...)
	slices.SortStableFunc(r.Suspects, func(a, b Suspect) int { return cmp.Compare(a.Ratio, b.Ratio) })
	slices.SortStableFunc(r.Ranking, func(a, b Rank) int { return cmp.Compare(a.Ratio, b.Ratio) })
	r.Note, r.Excluded = h.note(), h.excluded()
	switch {
	case len(r.Suspects)+len(r.Dead) > 0:
		r.Verdict = Found
	case len(r.Undecided) > 0 || h.suspicious || h.seen == nil || len(h.living()) < 2:
		r.Verdict = Undecided
	default:
		r.Verdict = Clean
	}
	return r
}

func (h *hunt) note() string {
	var notes []string
	switch {
	case len(h.living()) < 2:
		notes = append(notes, "fewer than two nodes are left: there is nothing to compare")
	case h.alone():
		notes = append(notes, "of two nodes only the directions can be compared: a pair that is slow both ways is not noticed, and which end is at fault cannot be told")
	}
	if h.plan.meetings != nil {
		n := len(h.plan.switches)
		met := 0
		for r := range h.met {
			if r.from != r.to {
				met++
			}
		}
		if of := n * (n - 1); met < of {
			notes = append(notes, fmt.Sprintf("paths between switches: %d of %d were loaded and compared", met, of))
		}
		if h.plan.at > 1 {
			notes = append(notes, fmt.Sprintf("paths between switches were loaded by 1/%d of a switch's nodes", h.plan.at))
		}
	}
	if n := len(h.lossUndecided()); n > 0 && h.all.loses() && !h.alone() {
		notes = append(notes, fmt.Sprintf("of %d nodes it was not decided whether they lose more packets than the rest", n))
	}
	if h.suspicious {
		notes = append(notes, "something comes and goes, and is not yet to be told from chance: measure longer (--for 10m)")
	}
	if h.lastError != nil {
		notes = append(notes, "the last measurement that failed: "+h.lastError.Error())
	}
	return strings.Join(notes, "; ")
}

// suspect is a node that is accused of being slow, of losing packets, or of both.
func (h *hunt) suspect(node int, slow, lossy *charge) Suspect {
	s := Suspect{Kind: Slow, Nodes: []int{node}, Slower: slow != nil}
	c := both(slow, lossy)
	s.P, s.Direction = least(c.p), direction(c.is(sends), c.is(receives), h.all.directed)
	s.Evidence = h.seen.evidenceOf(node, s.Direction, maxEvidence)
	var mine []float64
	for _, d := range h.seen.ways() {
		if c.is(d) {
			mine = append(mine, h.seen.residuals(node, d, h.onlyOwnCharge(node))...)
		}
	}
	s.Ratio = math.Exp(stat.Median(mine))
	s.Resent = medianResent(s.Evidence)
	if lossy != nil || h.unsteady(mine) {
		s.Kind = Lossy
	}
	h.marked(&s, node)
	return s
}

// both combines two charges.
func both(a, b *charge) *charge {
	out := &charge{}
	for _, c := range []*charge{a, b} {
		for d := range out.p {
			if c.is(way(d)) && (out.p[d] == 0 || c.p[d] < out.p[d]) {
				out.p[d] = c.p[d]
			}
		}
	}
	return out
}

// lossyShare is the share of retransmitted packets that does not justify an accusation; healthy
// fabrics have almost none.
const lossyShare = 1e-3

// unsteady reports whether values vary at least three times as much as those of the rest, and not
// by chance: the test of Brown and Forsythe (J. Amer. Statist. Assoc. 69, 1974) with ranks. The
// two directions of a pair share much of their noise, so the threshold is as strict as for half
// as many values.
func (h *hunt) unsteady(mine []float64) bool {
	var rest []float64
	for s := range h.seen.values {
		for i := range h.seen.values[s] {
			if !h.seen.gone[s][i] {
				rest = append(rest, -math.Abs(h.seen.residual(s, i)))
			}
		}
	}
	if len(rest) == 0 {
		return false
	}
	m := stat.Median(mine)
	dev := make([]float64, len(mine))
	for i, x := range mine {
		dev[i] = -math.Abs(x - m)
	}
	return stat.Median(dev) < 3*stat.Median(rest) && stat.Below(dev, rest) < 1e-8
}

func medianResent(list []Value) float64 {
	var out []float64
	for _, v := range list {
		out = append(out, v.Resent)
	}
	if len(out) == 0 {
		return 0
	}
	return stat.Median(out)
}

func ratioOf(list []Value) float64 {
	var out []float64
	for _, v := range list {
		out = append(out, v.Value/v.Usual)
	}
	if len(out) == 0 {
		return 0
	}
	return stat.Median(out)
}

// suspectRoute returns the suspect for a path between two switches, or between the only two nodes
// that are left.
func (h *hunt) suspectRoute(r route) Suspect {
	s := Suspect{Kind: SlowPath, Direction: Sending, Slower: true, P: h.routes[r]}
	if r.from < 0 {
		s.Nodes, s.Peers = []int{-1 - r.from}, []int{-1 - r.to}
	}
	if r.from < 0 && h.alone() {
		s.Evidence = h.seen.evidenceOf(s.Nodes[0], Sending, maxEvidence)
		// The other direction is what is usual.
		var back []float64
		for _, e := range h.seen.evidenceOf(s.Nodes[0], Receiving, 1<<20) {
			back = append(back, e.Value)
		}
		for i := range s.Evidence {
			s.Evidence[i].Usual = stat.Median(back)
		}
		s.Ratio = ratioOf(s.Evidence)
		return s
	}
	if r.from >= 0 {
		s.Nodes, s.Peers = h.plan.switches[r.from], h.plan.switches[r.to]
	}
	if r.from >= 0 && r.from == r.to {
		s.Kind, s.Direction, s.Peers = Inside, Both, nil
	}
	for st := len(h.seen.values) - 1; st >= 0; st-- {
		for i := range h.seen.values[st] {
			if v := &h.seen.values[st][i]; v.from >= 0 && (h.routeOf(v) == r || wayOf(v) == r) {
				s.Evidence = append(s.Evidence, v.asValue(h.seen.usual[st][i]))
			}
		}
	}
	s.Ratio = ratioOf(s.Evidence)
	s.Evidence = s.Evidence[:min(len(s.Evidence), maxEvidence)]
	return s
}

// rank uses all values that charges against other nodes do not explain.
func (h *hunt) rank(node int) (Rank, bool) {
	out := Rank{Node: node}
	for _, d := range h.seen.ways() {
		x := h.seen.residuals(node, d, h.onlyOwnCharge(node))
		if len(x) == 0 {
			continue
		}
		in := stat.MedianInterval(x, 0.95)
		if ratio := math.Exp(stat.Median(x)); out.Values == 0 || ratio < out.Ratio {
			out.Ratio, out.Low, out.High = ratio, math.Exp(in.Low), math.Exp(in.High)
		}
		out.Values += len(x)
	}
	return out, out.Values > 0
}

// String returns one line for the user.
func (s Suspect) String() string {
	return s.Text(func(nodes []int) string {
		if len(nodes) == 1 {
			return "node " + numbers(nodes)
		}
		return "nodes " + numbers(nodes)
	})
}

// Text is String with the given names of nodes.
func (s Suspect) Text(name func(nodes []int) string) string {
	who := name(s.Nodes)
	if s.Kind == SlowPath || s.Peers != nil {
		who = "the path from " + who + " to the others"
		switch {
		case s.Peers != nil && s.Direction == Both && len(s.Nodes) == 1:
			who = fmt.Sprintf("the path between %s and %s", name(s.Nodes), name(s.Peers))
		case s.Peers != nil && len(s.Nodes) == 1 && len(s.Peers) == 1:
			who = fmt.Sprintf("the path from %s to %s (either end, or what is between)", name(s.Nodes), name(s.Peers))
		case s.Peers != nil:
			who = "the path from " + name(s.Nodes) + " to " + name(s.Peers)
		case s.Direction == Receiving:
			who = "the path from the others to " + name(s.Nodes)
		case s.Direction == Both:
			who = "the path between " + name(s.Nodes) + " and the others"
		}
	}
	switch s.Kind {
	case Inside:
		who = "what connects " + name(s.Nodes) + " with one another"
	case Beyond:
		who = "what " + name(s.Nodes) + " share beyond their switches (a spine, or its links)"
	}
	what := map[Kind]string{
		Slow: "is slow", SlowPath: "is slow", Inside: "is slow", Beyond: "is slow", Lossy: "loses packets", Failing: "fails", Flapping: "comes and goes", Late: "is late",
		Duplicating: "duplicates packets", Reordering: "reorders packets",
	}[s.Kind]
	if s.Kind == Lossy && s.Slower {
		what = "is slow and loses packets"
	}
	if s.Kind == Slow && len(s.Nodes) > 1 {
		who = "what " + who + " share"
	}
	if s.Kind != SlowPath && s.Peers == nil && s.Direction != Both {
		what += ", " + string(s.Direction)
	}
	said := []string{}
	if s.Ratio < 1-dull || s.Symptoms == nil {
		said = append(said, fmt.Sprintf("%.0f %% of what is usual", 100*s.Ratio))
	}
	if s.Resent > 0 {
		said = append(said, fmt.Sprintf("%.2g %% sent again", 100*s.Resent))
	}
	said = append(said, s.symptomText()...)
	return fmt.Sprintf("%s %s: %s (p = %.1g)", who, what, strings.Join(said, ", "), s.P)
}

// dull is a difference from what is usual that is not worth telling beside symptoms.
const dull = 0.01

// numbers prints nodes as "0-3,7".
func numbers(nodes []int) string {
	var out []string
	for i := 0; i < len(nodes); {
		j := i
		for j+1 < len(nodes) && nodes[j+1] == nodes[j]+1 {
			j++
		}
		s := fmt.Sprint(nodes[i])
		if j > i {
			s += fmt.Sprintf("-%d", nodes[j])
		}
		out = append(out, s)
		i = j + 1
	}
	return strings.Join(out, ",")
}
