package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/hunt"
)

// Schema is the version of HuntReport's JSON.
const Schema = 1

// A HuntReport is what a hunt among machines found.
type HuntReport struct {
	Schema    int          `json:"schema"`
	Verdict   hunt.Verdict `json:"verdict"`
	Tool      Tool         `json:"tool"`
	Machines  []string     `json:"machines"` // that there were to be, by rank
	Suspects  []Suspect    `json:"suspects"` // the worst first
	Lost      []Loss       `json:"lost"`
	Absent    []Absent     `json:"absent"` // ports that the other machines have
	Undecided []string     `json:"undecided,omitempty"`
	Ranking   []Rank       `json:"ranking"` // the slowest first

	Alpha        float64  `json:"alpha"` // as hunt.Report's, of each kind of port
	Beta         float64  `json:"beta"`
	Least        float64  `json:"least"`
	Find         float64  `json:"find"`
	Rounds       int      `json:"rounds"` // of the longest hunt
	Measurements int      `json:"measurements"`
	Seed         uint64   `json:"seed"`
	Seconds      float64  `json:"seconds"`
	Notes        []string `json:"notes,omitempty"`
}

// A Suspect is a machine, a port of one, or a path that is slower than the rest.
type Suspect struct {
	Machines  []string       `json:"machines"`
	Port      string         `json:"port,omitempty"`
	Peers     []string       `json:"peers,omitempty"` // a path's other end
	Kind      hunt.Kind      `json:"kind"`
	Direction hunt.Direction `json:"direction"`
	Ratio     float64        `json:"ratio"`            // of what is usual
	Resent    float64        `json:"resent,omitempty"` // share of packets
	P         float64        `json:"p"`
	Text      string         `json:"text"` // all of it for a person
	Evidence  []Evidence     `json:"evidence"`
}

// Evidence is a measurement that speaks against a suspect, in B/s.
type Evidence struct {
	Round    int      `json:"round"`
	Machines []string `json:"machines"` // of a direction: from, to
	Value    float64  `json:"value"`
	Usual    float64  `json:"usual"`
	Resent   float64  `json:"resent,omitempty"`
}

// A Loss is a machine that is lost, or that nothing can be measured with.
type Loss struct {
	Machine string `json:"machine"`
	Round   int    `json:"round,omitempty"` // of the hunt; 0: not then, or not known
	Reason  string `json:"reason"`
}

// Absent is a port that a machine has not, or that is down.
type Absent struct {
	Machine string `json:"machine"`
	Port    string `json:"port"`
}

// A Rank is a place among all.
type Rank struct {
	Machine string  `json:"machine"`
	Port    string  `json:"port,omitempty"`
	Ratio   float64 `json:"ratio"` // of what is usual, in the worse direction
	Low     float64 `json:"low"`   // 95 %
	High    float64 `json:"high"`
	Values  int     `json:"values"`
}

// report puts together what the hunts found. They have ended.
func (d *driver) report() (*HuntReport, error) {
	r := &HuntReport{Schema: Schema, Tool: d.plan.Tool, Verdict: hunt.Clean, Suspects: []Suspect{}, Lost: []Loss{}, Absent: []Absent{}, Ranking: []Rank{}}
	for rank := range d.f.Size() {
		r.Machines = append(r.Machines, d.f.Name(rank))
	}
	lost := map[int]Loss{}
	for rank, why := range d.f.Lost() {
		lost[rank] = Loss{d.f.Name(rank), 0, why}
	}
	var failed error
	for _, one := range d.hunts {
		if one.err != nil {
			failed = cmp.Or(failed, one.err)
		}
		if one.report != nil {
			d.add(r, one, lost)
		}
		for rank, s := range d.setups {
			if s != nil && one.port != "" && !slices.Contains(one.seats, rank) {
				r.Absent = append(r.Absent, Absent{d.f.Name(rank), one.port})
			}
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(lost)) {
		r.Lost = append(r.Lost, lost[rank])
	}
	slices.SortStableFunc(r.Suspects, func(a, b Suspect) int { return cmp.Compare(a.Ratio, b.Ratio) })
	slices.SortStableFunc(r.Ranking, func(a, b Rank) int { return cmp.Compare(a.Ratio, b.Ratio) })
	if len(r.Suspects)+len(r.Lost)+len(r.Absent) > 0 {
		r.Verdict = hunt.Found
	}
	return r, failed
}

// add adds what one hunt found.
func (d *driver) add(r *HuntReport, one *running, lost map[int]Loss) {
	h := one.report
	names := func(nodes []int) (out []string) {
		for _, n := range nodes {
			out = append(out, d.f.Name(one.seats[n]))
		}
		return out
	}
	for _, s := range h.Suspects {
		x := Suspect{Machines: names(s.Nodes), Peers: names(s.Peers), Port: one.port, Kind: s.Kind, Direction: s.Direction, Ratio: s.Ratio, Resent: s.Resent, P: s.P}
		x.Text = s.Text(func(nodes []int) string {
			who := some(names(nodes))
			if one.port != "" {
				who += " " + one.port
			}
			return who
		})
		for _, e := range s.Evidence {
			x.Evidence = append(x.Evidence, Evidence{e.Round, names(e.Group), e.Value, e.Usual, e.Resent})
		}
		r.Suspects = append(r.Suspects, x)
	}
	for _, death := range h.Dead {
		rank := one.seats[death.Node]
		if was, is := lost[rank]; !is || was.Round == 0 {
			lost[rank] = Loss{d.f.Name(rank), death.Round, cmp.Or(was.Reason, death.Reason)}
		}
	}
	for _, place := range h.Ranking {
		r.Ranking = append(r.Ranking, Rank{d.f.Name(one.seats[place.Node]), one.port, place.Ratio, place.Low, place.High, place.Values})
	}
	for _, name := range names(h.Undecided) {
		r.Undecided = append(r.Undecided, strings.TrimSpace(name+" "+one.port))
	}
	if h.Note != "" {
		r.Notes = append(r.Notes, strings.TrimSpace(one.port+" "+h.Note))
	}
	if h.Verdict == hunt.Undecided {
		r.Verdict = hunt.Undecided
	}
	r.Alpha, r.Beta, r.Seed = h.Alpha, h.Beta, h.Seed
	r.Least, r.Find, r.Rounds = max(r.Least, h.Least), max(r.Find, h.Find), max(r.Rounds, h.Rounds)
	r.Measurements += h.Measurements
}

// some names a few.
func some(names []string) string {
	if n := len(names); n > 6 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), n-5)
	}
	return strings.Join(names, ", ")
}
