package matrix

import (
	"fmt"
	"slices"
)

// A Problem is something impossible in a target that this package cannot know, because it does not
// know how components are made.
type Problem struct {
	Target string
	Key    string // whose value is wrong: "base", "build", "components", "cuda", "capability" or a component
	Value  string
	Msg    string
	Remedy string
}

// Refuse returns problems as [Errors] with their places in the file, nil if there are none. A place
// that makes several targets impossible is in it once.
func (f *File) Refuse(problems []Problem) error {
	e := newExpansion(f)
	type found struct {
		Problem
		at      Pos
		field   string
		targets int
	}
	var all []found
	for _, p := range problems {
		i := slices.IndexFunc(e.rows, func(r targetRow) bool { return r.name == p.Target })
		if i < 0 {
			panic("matrix: no row is called " + p.Target)
		}
		r := e.rows[i]
		at, field := e.place(r, p.Key, p.Value, e.capabilities(r, r.facts()))
		if i := slices.IndexFunc(all, func(o found) bool { return o.at == at && o.Key == p.Key }); i >= 0 {
			if all[i].Target != p.Target {
				all[i].targets++
			}
			continue
		}
		all = append(all, found{p, at, field, 1})
	}
	for _, p := range all {
		targets := p.Target
		if p.targets > 1 {
			targets += fmt.Sprintf(" and %d more", p.targets-1)
		}
		e.report(p.at, p.field, fmt.Sprintf("impossible in %s: %s", targets, p.Msg), p.Remedy)
	}
	return e.err()
}
