package explain

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"sync"
)

// minLiteral is how many characters of a pattern must be literal: the scanner finds these first, so that a pattern is
// tried on few lines.
const minLiteral = 3

// maxLiteral is how many of them, the last ones, the scanner compares: with all, it has three times the states.
const maxLiteral = 10

// maxMatches bounds how many lines of an input count for one pattern.
const maxMatches = 2000

// A pattern is a regular expression that is searched for in lines.
type pattern struct {
	re       func() *regexp.Regexp // compiled when a line has one of the literals: few patterns of a set are needed
	literals []string              // each match has at least one of them
}

func newPattern(text string) (*pattern, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	p := &pattern{re: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) }), literals: required(tree.Simplify())}
	if shortest(p.literals) < minLiteral {
		return nil, fmt.Errorf("%q has no %d characters in a row that each match must have", text, minLiteral)
	}
	for i, l := range p.literals {
		p.literals[i] = l[max(0, len(l)-maxLiteral):]
	}
	return p, nil
}

// required returns strings of which each match of the expression contains at least one; nil if there are none.
func required(e *syntax.Regexp) []string {
	switch e.Op {
	case syntax.OpLiteral:
		if e.Flags&syntax.FoldCase == 0 {
			return []string{string(e.Rune)}
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(e.Sub[0])
	case syntax.OpRepeat:
		if e.Min > 0 {
			return required(e.Sub[0])
		}
	case syntax.OpConcat:
		var best, run []string // run: what a row of parts, each of which is one of a few strings, can be
		take := func(r []string) {
			if shortest(r) > shortest(best) {
				best = r
			}
		}
		for _, s := range e.Sub {
			if x := exact(s); x != nil && len(x)*max(len(run), 1) <= maxExact {
				run = product(run, x)
				continue
			}
			take(run)
			run = nil
			take(required(s))
		}
		take(run)
		return best
	case syntax.OpAlternate:
		var all []string
		for _, s := range e.Sub {
			r := required(s)
			if r == nil {
				return nil
			}
			all = append(all, r...)
		}
		return all
	}
	return nil
}

// maxExact bounds how many strings stand for a part of a pattern.
const maxExact = 64

// exact returns all strings that the expression matches, if they are few; otherwise nil.
func exact(e *syntax.Regexp) []string {
	switch e.Op {
	case syntax.OpLiteral:
		if e.Flags&syntax.FoldCase == 0 {
			return []string{string(e.Rune)}
		}
	case syntax.OpCapture:
		return exact(e.Sub[0])
	case syntax.OpConcat:
		var all []string
		for _, s := range e.Sub {
			x := exact(s)
			if x == nil || len(x)*max(len(all), 1) > maxExact {
				return nil
			}
			all = product(all, x)
		}
		return all
	case syntax.OpAlternate:
		var all []string
		for _, s := range e.Sub {
			x := exact(s)
			if x == nil || len(all)+len(x) > maxExact {
				return nil
			}
			all = append(all, x...)
		}
		return all
	case syntax.OpCharClass:
		var all []string
		for i := 0; i+1 < len(e.Rune); i += 2 {
			for r := e.Rune[i]; r <= e.Rune[i+1]; r++ {
				if all = append(all, string(r)); len(all) > 4 {
					return nil
				}
			}
		}
		return all
	case syntax.OpEmptyMatch:
		return []string{""}
	}
	return nil
}

// product is each string of a with each of b behind it.
func product(a, b []string) []string {
	if a == nil {
		return b
	}
	var out []string
	for _, x := range a {
		for _, y := range b {
			out = append(out, x+y)
		}
	}
	return out
}

// shortest is the length of the shortest string, 0 if there is none.
func shortest(all []string) int {
	if len(all) == 0 {
		return 0
	}
	return len(slices.MinFunc(all, func(a, b string) int { return len(a) - len(b) }))
}

// A scanner finds the literals of many patterns in one pass, as Aho and Corasick do (CACM 18, 1975).
type scanner struct {
	class   [256]uint8 // of bytes that no literal tells apart
	classes int
	next    []int32   // by state and class: where the next state's row begins, times 2, and 1 if a literal ends there
	found   [][]int32 // by state: the patterns one of whose literals ends there
}

func newScanner(patterns []*pattern) *scanner {
	s := &scanner{classes: 1, found: [][]int32{nil}}
	most := 1 // states
	for _, p := range patterns {
		for _, l := range p.literals {
			most += len(l)
			for i := range len(l) {
				if s.class[l[i]] == 0 {
					s.class[l[i]] = uint8(s.classes) // text has fewer than 256 different bytes
					s.classes++
				}
			}
		}
	}
	s.next = make([]int32, most*s.classes)
	for i, p := range patterns {
		for _, l := range p.literals {
			state := int32(0)
			for j := range len(l) {
				at := int(state)*s.classes + int(s.class[l[j]])
				if s.next[at] == 0 {
					s.next[at] = int32(len(s.found))
					s.found = append(s.found, nil)
				}
				state = s.next[at]
			}
			if !slices.Contains(s.found[state], int32(i)) {
				s.found[state] = append(s.found[state], int32(i))
			}
		}
	}
	// In the order of their depth, each state gets the transitions that it lacks from the longest suffix that is one.
	suffix := make([]int32, len(s.found))
	var queue []int32
	for c := range s.classes {
		if n := s.next[c]; n != 0 {
			queue = append(queue, n)
		}
	}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		for c := range s.classes {
			at, other := int(state)*s.classes+c, s.next[int(suffix[state])*s.classes+c]
			if n := s.next[at]; n != 0 {
				suffix[n] = other
				s.found[n] = append(slices.Clip(s.found[n]), s.found[other]...)
				queue = append(queue, n)
			} else {
				s.next[at] = other
			}
		}
	}
	for i, state := range s.next {
		s.next[i] = state * int32(s.classes) << 1
		if s.found[state] != nil {
			s.next[i] |= 1
		}
	}
	return s
}

// scan calls hit for each place where a literal ends, with the patterns that have it.
func (s *scanner) scan(text []byte, hit func(end int, patterns []int32)) {
	row, next := int32(0), s.next
	for i, b := range text {
		row = next[int(row>>1)+int(s.class[b])]
		if row&1 != 0 {
			hit(i+1, s.found[int(row>>1)/s.classes])
		}
	}
}
