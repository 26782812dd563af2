package model

import "slices"

// Shrink returns a smaller program that fails, too: without steps, calls, settings and elements
// that it fails without. It asks fails about valid programs only, at most so many times.
func Shrink(p Program, most int, fails func(Program) bool) Program {
	try := func(q Program) bool {
		if most <= 0 || !valid(q) {
			return false
		}
		most--
		if !fails(q) {
			return false
		}
		p = q
		return true
	}
	for smaller := true; smaller && most > 0; {
		smaller = false
		for _, q := range candidates(p) {
			if smaller = try(q); smaller {
				break
			}
		}
	}
	return p
}

// valid reports whether a machine runs the program.
func valid(p Program) bool {
	m := New(p)
	for i := range p.Steps {
		if m.Step(i) != nil {
			return false
		}
	}
	return len(p.Steps) > 0
}

// candidates are programs that are a little smaller, the smallest first.
func candidates(p Program) []Program {
	var all []Program
	add := func(change func(q *Program)) {
		q := p
		q.Steps = slices.Clone(p.Steps)
		change(&q)
		all = append(all, q)
	}
	for n := len(p.Steps) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(p.Steps); i += n {
			add(func(q *Program) { q.Steps = slices.Delete(q.Steps, i, i+n) })
		}
	}
	if len(p.Env) > 0 {
		add(func(q *Program) { q.Env = nil })
	}
	for i, s := range p.Steps {
		for k, c := range s.Calls {
			edit := func(change func(calls []Call) []Call) {
				add(func(q *Program) { q.Steps[i].Calls = change(slices.Clone(s.Calls)) })
			}
			edit(func(calls []Call) []Call { return slices.Delete(calls, k, k+1) })
			if c.Op == Send { // with its Recv
				if j := slices.IndexFunc(s.Calls, func(o Call) bool {
					return o.Op == Recv && o.Comm == c.Comm && o.From == c.From && o.To == c.To
				}); j >= 0 {
					edit(func(calls []Call) []Call {
						return slices.DeleteFunc(calls, func(o Call) bool { return same(o, c) || same(o, s.Calls[j]) })
					})
				}
			}
			if c.Count > 1 && c.Op != Recv && c.Op != Send {
				edit(func(calls []Call) []Call { calls[k].Count /= 2; return calls })
				edit(func(calls []Call) []Call { calls[k].Count--; return calls })
			}
		}
		if len(s.Single) > 0 {
			add(func(q *Program) { q.Steps[i].Single = nil })
		}
	}
	return all
}

func same(a, b Call) bool {
	return a.Op == b.Op && a.Comm == b.Comm && a.From == b.From && a.To == b.To && slices.Equal(a.Send, b.Send) && slices.Equal(a.Recv, b.Recv)
}
