package hunt

import (
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// oddSuspects returns a suspect for each place that has symptoms. A node that is a suspect already
// gets no second one, nor does one that is dead.
func (h *hunt) oddSuspects(already []Suspect) (out []Suspect) {
	var places []place
	of := map[place][]oddity{}
	for _, o := range h.odd {
		if !h.alive[o.a] || o.b >= 0 && !h.alive[o.b] {
			continue
		}
		if o.b >= 0 && (h.routes[route{-1 - o.a, -1 - o.b}] > 0 || o.d == Both && h.routes[route{-1 - o.b, -1 - o.a}] > 0) {
			continue // the values of this way say it
		}
		known := o.b == anyNode && slices.ContainsFunc(already, func(s Suspect) bool { return s.Peers == nil && slices.Contains(s.Nodes, o.a) })
		if known {
			continue
		}
		at := o.place
		if at.b == anyNode {
			at.d = Both
		}
		if of[at] == nil {
			places = append(places, at)
		}
		of[at] = append(append(of[at], o), o.also...)
	}
	for _, at := range places {
		out = append(out, h.oddSuspect(at, of[at]))
	}
	return out
}

func (h *hunt) oddSuspect(at place, list []oddity) Suspect {
	s := Suspect{Nodes: []int{at.a}, Direction: list[0].d, P: list[0].p, Kind: kindOf(list)}
	if at.b >= 0 {
		s.Peers = []int{at.b}
		if s.Kind == Slow {
			s.Kind = SlowPath
		}
	}
	for i, o := range list {
		if o.d != s.Direction {
			s.Direction = Both
		}
		s.P = min(s.P, o.p)
		s.Slower = s.Slower || o.symptom == Dropped
		if slices.ContainsFunc(list[:i], func(x oddity) bool { return x.symptom == o.symptom }) {
			continue
		}
		s.Symptoms = append(s.Symptoms, o.seen())
	}
	usual := h.usual()
	var ratios []float64
	for i := len(h.events) - 1; i >= 0; i-- {
		e := &h.events[i]
		for _, f := range e.flows {
			if f.value == 0 || !(place{at.a, at.b, s.Direction}).explains(f, e.group) {
				continue
			}
			u := usual[h.classOf(e.group)]
			ratios = append(ratios, f.value/u)
			if len(s.Evidence) < maxEvidence {
				s.Evidence = append(s.Evidence, Value{Round: e.round, Group: groupOf(f, e.group), Value: f.value, Usual: u})
			}
		}
	}
	s.Ratio = 1
	if len(ratios) > 0 {
		s.Ratio = stat.Median(ratios)
	}
	return s
}

func (o oddity) seen() Seen { return Seen{o.symptom, int(o.with), int(o.of), o.rest, o.p} }

func groupOf(f flow, group []int) []int {
	if f.from < 0 {
		return group
	}
	return []int{f.from, f.to}
}

func has(list []oddity, s Symptom) *oddity {
	if i := slices.IndexFunc(list, func(o oddity) bool { return o.symptom == s }); i >= 0 {
		return &list[i]
	}
	return nil
}

// kindOf says what symptoms together are a sign of.
func kindOf(list []oddity) Kind {
	always := func(o *oddity) bool { return o != nil && 10*o.with >= 9*o.of }
	switch {
	case always(has(list, Failed)):
		return Failing
	case always(has(list, Dropped)):
		return Slow
	case has(list, Stalled) != nil || has(list, Failed) != nil:
		return Flapping
	}
	// Of the others the one that is seen most often.
	kind, most := Flapping, int32(0)
	for _, x := range []struct {
		symptom Symptom
		kind    Kind
	}{{Missing, Lossy}, {Delayed, Late}, {LongTail, Late}, {Doubled, Duplicating}, {Swapped, Reordering}, {Dropped, Flapping}} {
		if o := has(list, x.symptom); o != nil && o.with > most {
			kind, most = x.kind, o.with
		}
	}
	return kind
}

// marked adds the symptoms of a node that is accused of being slow, or of losing packets. They say
// what kind of slowness or loss it is.
func (h *hunt) marked(s *Suspect, node int) {
	list := h.marks(node)
	for _, o := range list {
		s.Symptoms = append(s.Symptoms, o.seen())
	}
	switch kind := kindOf(list); {
	case len(list) == 0:
	case kind == Reordering && s.Kind == Lossy:
		s.Kind = Reordering // TCP sends again what is only late
	case kind == Flapping && has(list, Stalled) != nil:
		s.Kind = Flapping
	}
}

// symptomText lists what measurements showed.
func (s Suspect) symptomText() (out []string) {
	for _, x := range s.Symptoms {
		out = append(out, fmt.Sprintf("%s in %d of %d measurements (others: %.2g %%)", x.Symptom, x.With, x.Of, 100*x.Rest))
	}
	return out
}
