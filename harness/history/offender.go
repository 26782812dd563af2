package history

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// An Offender is a GPU, a port or a machine that failed a check, passed it, and failed it again:
// what was done about it did not help.
type Offender struct {
	Machine string    `json:"machine"`          // where it failed last
	Check   string    `json:"check"`            // the check that it failed each time
	Object  string    `json:"object,omitempty"` // its last name; "" for the machine
	ID      string    `json:"id,omitempty"`     // UUID, GUID
	Faults  []Episode `json:"faults"`           // at least two, the oldest first
}

// An Episode is a time in which a thing failed a check.
type Episode struct {
	Machine string    `json:"machine"`
	From    time.Time `json:"from"`             // the first certificate that failed,
	To      time.Time `json:"to"`               // and the last one
	Passed  time.Time `json:"passed,omitzero"`  // the next one that did not; zero if there was none
	Reason  string    `json:"reason,omitempty"` // of the last one
}

// part is a thing that a check tests, on whatever machine it is. One without a UUID or GUID stays on
// its machine.
type part struct{ check, id, machine string }

// fault is that a part failed.
type fault struct {
	at                              time.Time
	machine, digest, object, reason string
}

// fault notes the things that failed a check, or the machine if the check names none.
func (c *Collector) fault(st *certificate.Statement, res *result.Result, ids map[string]string) {
	if res.Verdict != result.Fail {
		return
	}
	name, digest := Subject(st)
	failed := map[part]fault{} // a thing may have several figures
	for _, o := range res.Objects {
		if o.Verdict != result.Fail {
			continue
		}
		p := part{check: res.ID, id: cmp.Or(o.ID, ids[o.Name])}
		if p.id == "" {
			p = part{res.ID, o.Name, name}
		}
		if _, ok := failed[p]; !ok {
			failed[p] = fault{st.Predicate.Finished, name, digest, o.Name, o.Reason}
		}
	}
	if len(failed) == 0 {
		failed[part{res.ID, "", name}] = fault{st.Predicate.Finished, name, digest, "", res.Reason}
	}
	for p, f := range failed {
		c.faults[p] = append(c.faults[p], f)
	}
}

// offenders returns what failed a check again after it had passed it, the most frequent first.
func (c *Collector) offenders(subjects []*subject) []Offender {
	named := map[part]map[time.Time]bool{} // when a check named the things that failed on a machine
	for p, all := range c.faults {
		for _, f := range all {
			k := part{check: p.check, machine: f.machine}
			if named[k] == nil {
				named[k] = map[time.Time]bool{}
			}
			named[k][f.at] = f.object != ""
		}
	}
	out := []Offender{}
	for p, all := range c.faults {
		if len(all) < 2 {
			continue
		}
		slices.SortStableFunc(all, func(a, b fault) int { return a.at.Compare(b.at) })
		passed := passes(subjects, p, all, named)
		last := all[len(all)-1]
		o := Offender{Machine: last.machine, Check: p.check, Object: last.object}
		if p.machine == "" {
			o.ID = p.id
		}
		for _, f := range all {
			if n := len(o.Faults); n > 0 {
				was := &o.Faults[n-1]
				next, _ := slices.BinarySearchFunc(passed, was.To, func(a, b time.Time) int {
					if a.After(b) {
						return 1
					}
					return -1
				})
				if next == len(passed) || !passed[next].Before(f.at) {
					was.To, was.Reason = f.at, f.reason
					continue
				}
				was.Passed = passed[next]
			}
			o.Faults = append(o.Faults, Episode{Machine: f.machine, From: f.at, To: f.at, Reason: f.reason})
		}
		if len(o.Faults) < 2 {
			continue
		}
		end := &o.Faults[len(o.Faults)-1]
		for _, at := range passed {
			if at.After(end.To) {
				end.Passed = at
				break
			}
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b Offender) int {
		return cmp.Or(len(b.Faults)-len(a.Faults), strings.Compare(a.Machine, b.Machine), strings.Compare(a.Check, b.Check), strings.Compare(a.Object, b.Object), strings.Compare(a.ID, b.ID))
	})
	return out
}

// passes returns when a part that failed passed the check, in order: on a machine that has it, when
// the check failed of nothing, or of other things only.
func passes(subjects []*subject, p part, faults []fault, named map[part]map[time.Time]bool) (out []time.Time) {
	failed := map[time.Time]bool{}
	where := map[string]bool{}
	for _, f := range faults {
		failed[f.at], where[f.machine] = true, true
	}
	for _, m := range subjects {
		for _, r := range m.runs {
			j, ok := r.verdicts[p.check]
			if !ok || failed[r.At] || !(where[r.name] && !r.without(p.id) || r.has(p.id)) {
				continue
			}
			if j.verdict == result.Pass || j.verdict == result.Warn || j.verdict == result.Fail && p.id != "" && named[part{check: p.check, machine: r.name}][r.At] {
				out = append(out, r.At)
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

// has reports whether a machine had a part then.
func (r *certificateRun) has(id string) bool {
	for _, v := range r.parts {
		if v == id {
			return true
		}
	}
	return false
}

// without reports whether a machine was without a GPU, although it had others.
func (r *certificateRun) without(id string) bool {
	return strings.HasPrefix(id, "GPU-") && len(r.parts) > 0 && !r.has(id)
}
