package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
)

// subjects returns all machines, by name and digest, with series and certificates in order. A
// machine of the same name that has some of its parts is the same one after a repair.
func (c *Collector) subjects() (out []*subject) {
	byName := map[string][]*subject{}
	for _, digest := range slices.Sorted(maps.Keys(c.machines)) {
		m := c.machines[digest]
		m.sort()
		byName[m.name()] = append(byName[m.name()], m)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var known []*subject
		for _, m := range byName[name] {
			m = m.clone()
			for i := 0; i < len(known); {
				if m.shares(known[i]) {
					m = known[i].merge(m)
					known = slices.Delete(known, i, i+1)
					continue
				}
				i++
			}
			known = append(known, m)
		}
		for _, m := range known {
			m.sort()
		}
		slices.SortFunc(known, func(a, b *subject) int { return strings.Compare(a.digest, b.digest) })
		out = append(out, known...)
	}
	return out
}

func (m *subject) sort() {
	slices.SortStableFunc(m.runs, func(a, b certificateRun) int { return a.At.Compare(b.At) })
	for _, s := range m.series {
		slices.SortFunc(s.points, func(a, b Value) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Value, b.Value)) })
	}
}

func (m *subject) name() string { return m.runs[len(m.runs)-1].name }

func (m *subject) shares(o *subject) bool {
	return slices.ContainsFunc(m.parts, func(p string) bool { return slices.Contains(o.parts, p) })
}

// clone returns a copy that can be merged into.
func (m *subject) clone() *subject {
	out := *m
	out.runs, out.series = slices.Clone(m.runs), maps.Clone(m.series)
	return &out
}

// merge adds the certificates of another subject, which is the same machine.
func (m *subject) merge(o *subject) *subject {
	if m.runs[len(m.runs)-1].At.After(o.runs[len(o.runs)-1].At) {
		m, o = o, m
	}
	out := o.clone() // the later one
	out.runs = append(out.runs, m.runs...)
	out.parts = append(slices.Clone(o.parts), m.parts...)
	for k, s := range m.series {
		if its := out.series[k]; its != nil {
			both := *its
			both.points = append(slices.Clone(its.points), s.points...)
			s = &both
		}
		out.series[k] = s
	}
	return out
}

// groups returns the figures of a machine by kind, in the order of the last certificate that
// contains each.
func (m *subject) groups() (out []*group) {
	var kinds []kind
	by := map[kind][]*series{}
	for _, s := range m.ordered() {
		k := s.kind()
		if by[k] == nil {
			kinds = append(kinds, k)
		}
		by[k] = append(by[k], s)
	}
	for _, k := range kinds {
		out = append(out, newGroup(k, by[k]))
	}
	return out
}

func (m *subject) ordered() []*series {
	return slices.SortedFunc(maps.Values(m.series), func(a, b *series) int {
		return cmp.Or(b.named.Compare(a.named), cmp.Compare(a.order, b.order))
	})
}

func (m *subject) finish(j *judge, groups []*group) Machine {
	out := Machine{
		Name: m.name(), Digest: m.digest, Certificates: len(m.runs), First: m.runs[0].At, Last: m.runs[len(m.runs)-1].At,
		Series: []Series{}, Common: []Drift{}, Changes: m.changes(), Verdicts: m.verdictChanges(),
	}
	done := map[*series]Series{}
	for _, g := range groups {
		verdicts := j.group(g)
		for _, t := range g.tracks {
			done[t.s] = t.finish(g, verdicts[t], out.Changes)
		}
		if g.common != nil {
			out.Common = append(out.Common, g.finishCommon(verdicts[g.common], out.Changes)...)
		}
	}
	for _, s := range m.ordered() {
		out.Series = append(out.Series, done[s])
	}
	suites := map[string]bool{}
	for _, r := range m.runs {
		out.Runs = append(out.Runs, r.Run)
		suites[r.Suite] = true
	}
	out.Suites = len(suites)
	return out
}

// changes lists each fact that differs from its last known value, and parts that were replaced:
// where there is one that the machine did not have before.
func (m *subject) changes() []Change {
	out := []Change{}
	known := map[string]string{}
	there := map[string]bool{} // parts that the machine had
	for _, r := range m.runs {
		for _, what := range slices.Sorted(maps.Keys(r.parts)) {
			id := r.parts[what]
			if was, ok := known[what]; ok && was != id && !there[id] {
				out = append(out, Change{r.At, what, was, id})
			}
			known[what] = id
		}
		for _, id := range r.parts {
			there[id] = true
		}
		for _, what := range slices.Sorted(maps.Keys(r.facts)) {
			if was, ok := known[what]; ok && was != r.facts[what] {
				out = append(out, Change{r.At, what, was, r.facts[what]})
			}
			known[what] = r.facts[what]
		}
	}
	return out
}

func (m *subject) verdictChanges() []VerdictChange {
	out := []VerdictChange{}
	known := map[[2]string]result.Verdict{}
	for _, r := range m.runs {
		for _, check := range slices.Sorted(maps.Keys(r.verdicts)) {
			now := r.verdicts[check]
			if now.verdict == result.Skip {
				continue
			}
			this := [2]string{r.Suite, check}
			if was, ok := known[this]; ok && was != now.verdict {
				out = append(out, VerdictChange{r.At, r.Suite, check, was, now.verdict, now.reason})
			}
			known[this] = now.verdict
		}
	}
	return out
}
