package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/result"
)

// A HuntReport is the result of a hunt among machines: one result, with an object for each machine
// or port.
type HuntReport struct {
	result.Report
	Outcome   hunt.Verdict `json:"outcome"`
	Tool      Tool         `json:"tool"`
	Machines  []string     `json:"machines"` // all planned machines, by rank
	Suspects  []Suspect    `json:"suspects"` // worst first
	Lost      []Loss       `json:"lost"`
	Absent    []Absent     `json:"absent"` // ports that the other machines have
	Undecided []string     `json:"undecided,omitempty"`
	Ranking   []Rank       `json:"-"` // slowest first

	Alpha        float64  `json:"alpha"` // as in hunt.Report, for each kind of port
	Beta         float64  `json:"beta"`
	Least        float64  `json:"least"`
	Find         float64  `json:"find"`
	Rounds       int      `json:"rounds"` // of the longest hunt
	Measurements int      `json:"measurements"`
	Seed         uint64   `json:"seed"`
	Notes        []string `json:"notes,omitempty"`

	Excluded hunt.Excluded `json:"excluded"` // of the kind of port of which least is known
}

// A Suspect is a machine, a port of one, or a path that is slower than the rest.
type Suspect struct {
	Machines  []string       `json:"machines"`
	Group     string         `json:"group,omitempty"` // the switch, rack, … that the machines are
	Port      string         `json:"port,omitempty"`
	Peers     []string       `json:"peers,omitempty"` // a path's other end
	Kind      hunt.Kind      `json:"kind"`
	Direction hunt.Direction `json:"direction"`
	Ratio     float64        `json:"ratio"`            // to the usual value
	Resent    float64        `json:"resent,omitempty"` // share of packets
	P         float64        `json:"p"`
	Symptoms  []hunt.Seen    `json:"symptoms,omitempty"`
	Text      string         `json:"text"` // the whole finding as a sentence
	Evidence  []Evidence     `json:"evidence"`
}

// Evidence is a measurement that incriminates a suspect, in B/s.
type Evidence struct {
	Round    int      `json:"round"`
	Machines []string `json:"machines"` // for one direction: from, to
	Value    float64  `json:"value"`
	Usual    float64  `json:"usual"`
	Resent   float64  `json:"resent,omitempty"`
}

// A Loss is a machine that is lost, or that cannot be measured.
type Loss struct {
	Machine string `json:"machine"`
	Round   int    `json:"round,omitempty"` // of the hunt; 0: not during the hunt, or not known
	Reason  string `json:"reason"`
}

// Absent is a port that a machine does not have, or that is down.
type Absent struct {
	Machine string `json:"machine"`
	Port    string `json:"port"`
}

// A Rank is one place in the ranking.
type Rank struct {
	Machine string
	Port    string
	Ratio   float64 // to the usual value, in the worse direction
	Low     float64 // of the 95 % interval
	High    float64
	Values  int
}

// report combines the results of the hunts, which have ended.
func (d *driver) report() (*HuntReport, error) {
	r := &HuntReport{Tool: d.plan.Tool, Outcome: hunt.Clean, Suspects: []Suspect{}, Lost: []Loss{}, Absent: []Absent{}}
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
		r.Outcome = hunt.Found
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
	ranks := func(nodes []int) (out []int) {
		for _, n := range nodes {
			out = append(out, one.seats[n])
		}
		return out
	}
	for _, s := range h.Suspects {
		x := Suspect{Machines: names(s.Nodes), Group: d.group(ranks(s.Nodes)), Peers: names(s.Peers), Port: one.port, Kind: s.Kind, Direction: s.Direction, Ratio: s.Ratio, Resent: s.Resent, P: s.P, Symptoms: s.Symptoms}
		x.Text = s.Text(func(nodes []int) string {
			who := some(names(nodes))
			if at := d.group(ranks(nodes)); at != "" {
				who = at + " (" + who + ")"
			}
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
		r.Outcome = hunt.Undecided
	}
	r.Alpha, r.Beta, r.Seed = h.Alpha, h.Beta, h.Seed
	r.Least, r.Find, r.Rounds = max(r.Least, h.Least), max(r.Find, h.Find), max(r.Rounds, h.Rounds)
	r.Measurements += h.Measurements
	x, y := &r.Excluded, h.Excluded
	*x = hunt.Excluded{Slower: max(x.Slower, y.Slower), Path: max(x.Path, y.Path), Lost: max(x.Lost, y.Lost), Outages: max(x.Outages, y.Outages)}
}

// some lists the first few names.
func some(names []string) string {
	if n := len(names); n > 6 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), n-5)
	}
	return strings.Join(names, ", ")
}

// ResultID is the ID of a hunt's result.
const ResultID = "hunt"

// conclude creates the result.
func (r *HuntReport) conclude() error {
	res := result.Passed("%d machines, %d measurements in %d rounds, %.0f s: no machine %s", len(r.Machines), r.Measurements, r.Rounds, r.Seconds, r.Excluded)
	var said []string
	accused := map[string]string{}
	for _, s := range r.Suspects {
		said = append(said, s.Text)
		for _, m := range s.Machines {
			accused[m+" "+s.Port] = s.Text
		}
	}
	note := func(name string, v result.Verdict, text string) {
		said = append(said, text)
		res.Objects = append(res.Objects, result.Object{Name: name, Verdict: v, Reason: text})
	}
	for _, a := range r.Absent {
		note(a.Machine+" "+a.Port, result.Fail, fmt.Sprintf("%s has no port %s that is up", a.Machine, a.Port))
	}
	guilty := len(said) > 0
	for _, l := range r.Lost {
		note(l.Machine, result.Error, fmt.Sprintf("%s was lost: %s", l.Machine, l.Reason))
	}
	for _, place := range r.Ranking {
		o := result.Object{Name: strings.TrimSpace(place.Machine + " " + place.Port), Quantity: "bandwidth, of what is usual", Verdict: result.Pass}
		o.Measured = &result.Measurement{Value: place.Ratio, Unit: "ratio", Spread: &result.Spread{Low: place.Low, High: place.High, Kind: result.Confidence, Samples: place.Values}}
		if text := accused[place.Machine+" "+place.Port]; text != "" {
			o.Verdict, o.Reason = result.Fail, text
		}
		res.Objects = append(res.Objects, o)
	}
	switch {
	case guilty:
		res.Verdict, res.Remedy = result.Fail, "look at the machine's ports, cables and counters (harness ib devices, harness health), then run harness hunt again"
	case len(said) > 0:
		res.Verdict = result.Error
	case r.Outcome == hunt.Undecided:
		res.Verdict, res.Remedy = result.Warn, "the network is noisy: see whether others use it, or measure longer (duration)"
		said = append(said, fmt.Sprintf("not decided after %d rounds: %s", r.Rounds, some(r.Undecided)))
	}
	if len(said) > 0 {
		res.Reason = strings.Join(said, "; ")
	}
	var page strings.Builder
	if err := r.WriteText(&page); err != nil {
		return err
	}
	res.ID, res.Title, res.Seconds, res.Output = ResultID, "no machine is slower than the rest", r.Seconds, page.String()
	r.Kind, r.Results = "hunt", []result.Result{res}
	r.Sum()
	return nil
}
