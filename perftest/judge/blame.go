package judge

import (
	"cmp"
	"slices"

	"github.com/assay-hpc/assay/internal/result"
)

// A Matrix contains the measurements between the members of a set, which are numbered from 0. Value
// is 0 if a cell has none.
type Matrix struct {
	Members int
	Cells   int
	Cell    func(i int) (from, to int, value float64, v result.Verdict)
	Limits  Limits
}

// A Suspect is a part of a matrix that may be at fault for all of its cells: all cells of its
// members, only those that they send, or only those that they receive.
type Suspect struct {
	Members         []int
	Sends, Receives bool
	// Others maps a member to the identity of an end of a cell. If all bad cells have the same
	// other end, that end may be at fault. nil: the member's number.
	Others func(member int) int
}

// A Culprit is a suspect all of whose cells are bad.
type Culprit struct {
	Suspect int   // its index among all suspects, class by class
	Cells   []int // those that no earlier culprit explains
}

// memberCells is the cells of a member in one direction.
type memberCells struct {
	good int
	bad  []int
}

// Blame goes through the suspects class by class, and within a class worst first. A suspect
// explains its bad cells if none of its cells is good and their other ends differ. An explained
// cell does not count for later suspects. left contains the bad cells without a culprit. The time
// is proportional to the number of cells and of the suspects' members.
func (m *Matrix) Blame(classes ...[]Suspect) (found []Culprit, left []int) {
	sent, received := make([]memberCells, m.Members), make([]memberCells, m.Members)
	for i := range m.Cells {
		from, to, _, v := m.Cell(i)
		for _, r := range []*memberCells{&sent[from], &received[to]} {
			switch {
			case v.Bad():
				r.bad = append(r.bad, i)
			case v == result.Pass:
				r.good++
			}
		}
	}
	explained := make([]bool, m.Cells)
	first := 0
	for _, class := range classes {
		for _, s := range m.worstFirst(class, sent, received) {
			cells := slices.DeleteFunc(s.cells, func(i int) bool { return explained[i] })
			if !m.differ(&class[s.at], cells) {
				continue
			}
			for _, i := range cells {
				explained[i] = true
			}
			found = append(found, Culprit{first + s.at, cells})
		}
		first += len(class)
	}
	for i := range m.Cells {
		if _, _, _, v := m.Cell(i); v.Bad() && !explained[i] {
			left = append(left, i)
		}
	}
	return found, left
}

// A ranked is a suspect of a class with its cells in ascending order, and their mean.
type ranked struct {
	at    int
	cells []int
	mean  float64
}

// worstFirst returns the suspects that have bad cells and no good ones, worst first.
func (m *Matrix) worstFirst(class []Suspect, sent, received []memberCells) (out []ranked) {
	for at := range class {
		s := &class[at]
		r, good := ranked{at: at}, 0
		for _, p := range s.Members {
			if s.Sends {
				good, r.cells = good+sent[p].good, append(r.cells, sent[p].bad...)
			}
			if s.Receives {
				good, r.cells = good+received[p].good, append(r.cells, received[p].bad...)
			}
			if good > 0 {
				break
			}
		}
		if good > 0 || len(r.cells) == 0 {
			continue
		}
		slices.Sort(r.cells)
		r.cells = slices.Compact(r.cells)
		for _, i := range r.cells {
			_, _, v, _ := m.Cell(i)
			r.mean += m.rank(v) / float64(len(r.cells))
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b ranked) int { return cmp.Compare(a.mean, b.mean) })
	return out
}

// rank is lower for a worse value, and 0 if there is none: a dead member has the lowest mean, and
// one dead cell among slow ones does not hide them.
func (m *Matrix) rank(v float64) float64 {
	if m.Limits.Lower && v > 0 {
		return 1 / v
	}
	return v
}

// differ reports whether a suspect's cells have different other ends.
func (m *Matrix) differ(s *Suspect, cells []int) bool {
	end := s.Others
	if end == nil {
		end = func(member int) int { return member }
	}
	own, first := end(s.Members[0]), -1
	for k, i := range cells {
		from, to, _, _ := m.Cell(i)
		other := end(from) + end(to) - own
		if k == 0 {
			first = other
		}
		if other != first {
			return true
		}
	}
	return false
}

// Worst returns the worst of the given cells, which is the one to quote, and the verdict on all of
// them.
func (m *Matrix) Worst(cells []int) (worst int, all result.Verdict) {
	rank := func(i int) float64 { _, _, v, _ := m.Cell(i); return m.rank(v) }
	all = result.Pass
	for _, i := range cells {
		_, _, _, v := m.Cell(i)
		all = result.Worst(all, v)
	}
	return slices.MinFunc(cells, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) }), all
}
