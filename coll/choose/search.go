package choose

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A Search determines by measurement which choices for GPUs are the fastest.
type Search[C stringer] struct {
	Coarse func(bytes int) []C           // a coarse grid of all choices
	Like   func(k C, bytes int) []C      // choices similar to a choice
	Limit  func(k C) C                   // limits a choice to what settings and devices allow
	Can    func(k C, bytes int) bool     // whether settings and devices allow it at all
	Time   func(C, int) (float64, error) // microseconds, or 0 if it could not be done
	Blocks func(k C) int                 // multiprocessors that it takes

	bytes int
	found []finding[C] // at bytes, each choice once
}

type stringer interface {
	comparable
	fmt.Stringer
}

// A finding is a choice that was measured.
type finding[C stringer] struct {
	choice C
	bytes  int
	micros float64
}

const (
	// better is how much faster a choice has to be than that of the previous size: smaller
	// differences are noise.
	better = 0.98
	// near is how much slower than the fastest a choice may be for similar ones to be tried.
	near  = 1.5
	likes = 3 // similar choices are tried for at most this many
	// alike is how much slower than the fastest a choice with fewer blocks may be: what it leaves to
	// products that run at the same time is worth more.
	alike = 1.03
	// steady is the size from which bandwidth decides: the best choice for such a message is
	// best for all longer ones.
	steady = 64 << 20
)

// Rows returns rows of the fastest choices at some ascending sizes.
func (s *Search[C]) Rows(sizes []int) ([]Row, error) {
	var all []finding[C]
	for _, bytes := range sizes {
		s.bytes, s.found = bytes, nil
		var last *C
		if n := len(all); n > 0 {
			last = &all[n-1].choice
		}
		f, err := s.best(last)
		if err != nil {
			return nil, err
		}
		if f.micros > 0 {
			all = append(all, f)
		}
	}
	return merge(all), nil
}

// best tries a coarse grid, and then choices similar to its fastest ones. last is the best
// choice of the previous size.
func (s *Search[C]) best(last *C) (none finding[C], err error) {
	for _, k := range s.Coarse(s.bytes) {
		if _, err := s.try(k); err != nil {
			return none, err
		}
	}
	for _, f := range s.fastest(likes) {
		for _, k := range s.Like(f.choice, s.bytes) {
			if _, err := s.try(k); err != nil {
				return none, err
			}
		}
	}
	top, ok := s.top()
	if !ok || last == nil || top.choice == *last {
		return top, nil
	}
	old, err := s.try(*last)
	if err != nil || old.micros == 0 || s.Blocks(top.choice) < s.Blocks(*last) {
		return top, err
	}
	// The fastest of many may have been lucky: the two are measured once more.
	for _, f := range []*finding[C]{&old, &top} {
		micros, err := s.Time(f.choice, s.bytes)
		if err != nil {
			return none, err
		}
		if micros > 0 {
			f.micros = max(f.micros, micros)
		}
	}
	if top.micros < better*old.micros {
		return top, nil
	}
	return old, nil
}

// top returns the choice with the fewest blocks among those about as fast as the fastest one.
func (s *Search[C]) top() (top finding[C], ok bool) {
	fast := s.fastest(len(s.found))
	for _, f := range fast {
		if f.micros <= alike*fast[0].micros && (!ok || s.Blocks(f.choice) < s.Blocks(top.choice)) {
			top, ok = f, true
		}
	}
	return top, ok
}

// try measures a choice, if it is possible and was not measured yet. Its time is 0 if it
// cannot be done.
func (s *Search[C]) try(k C) (f finding[C], err error) {
	k = s.Limit(k)
	if i := slices.IndexFunc(s.found, func(f finding[C]) bool { return f.choice == k }); i >= 0 {
		return s.found[i], nil
	}
	f = finding[C]{choice: k, bytes: s.bytes}
	if s.Can(k, s.bytes) {
		f.micros, err = s.Time(k, s.bytes)
		s.found = append(s.found, f)
	}
	return f, err
}

// fastest returns the n fastest choices so far, without those that are far slower than the
// best.
func (s *Search[C]) fastest(n int) []finding[C] {
	done := slices.DeleteFunc(slices.Clone(s.found), func(f finding[C]) bool { return f.micros <= 0 })
	slices.SortStableFunc(done, func(a, b finding[C]) int { return cmp.Compare(a.micros, b.micros) })
	done = slices.DeleteFunc(done, func(f finding[C]) bool { return f.micros > near*done[0].micros })
	return done[:min(n, len(done))]
}

// merge converts findings to rows: one for neighbours with the same choice.
func merge[C stringer](all []finding[C]) (rows []Row) {
	for i, f := range all {
		r := Row{f.choice.String(), [][2]int64{{int64(f.bytes), int64(math.Round(f.micros * 1e3))}}}
		if n := len(rows); n > 0 && rows[n-1].Choice == r.Choice {
			rows[n-1] = r
		} else {
			rows = append(rows, r)
		}
		if i == len(all)-1 && f.bytes >= steady {
			rows[len(rows)-1].Took[0][0] = 0
		}
	}
	return rows
}
