package judge

import (
	"cmp"
	"slices"

	"github.com/assay-hpc/assay/harness/result"
)

// A Matrix is what was measured from members of a set, numbered from 0, to one another.
// Value is 0 where there is none.
type Matrix struct {
	Members int
	Cells   int
	Cell    func(i int) (from, to int, value float64, v result.Verdict)
	Limits  Limits
}

// A Suspect is a part of a matrix that may be to blame for all cells it is in: all of
// its members', or those that they send, or those that they receive.
type Suspect struct {
	Members         []int
	Sends, Receives bool
	// Others says which other end a member is, since cells that all have the same one
	// may be that one's fault; nil: its number.
	Others func(member int) int
}

// A Culprit is a suspect all of whose cells are bad.
type Culprit struct {
	Suspect int   // its position among all, class by class
	Cells   []int // those that nobody before it explains
}

// row is a member's cells in one direction.
type row struct {
	good int
	bad  []int
}

// Blame goes through suspects, class by class, and those of a class worst first. Each
// explains its bad cells, if none of its cells is good and their other ends differ;
// what it explains counts for nobody else. left are the bad cells without a culprit.
// It takes time in proportion to the cells, and the suspects' members.
func (m *Matrix) Blame(classes ...[]Suspect) (found []Culprit, left []int) {
	sent, received := make([]row, m.Members), make([]row, m.Members)
	for i := range m.Cells {
		from, to, _, v := m.Cell(i)
		for _, r := range []*row{&sent[from], &received[to]} {
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

// A ranked is a suspect of a class with its cells, in their order, and their mean.
type ranked struct {
	at    int
	cells []int
	mean  float64
}

// worstFirst are the suspects that have bad cells alone.
func (m *Matrix) worstFirst(class []Suspect, sent, received []row) (out []ranked) {
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

// rank is lower for a worse value, and 0 for none: the mean of a dead member's is the
// lowest, and one dead cell among slow ones does not hide them.
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

// Worst is the cell to quote of some, and the verdict on all of them.
func (m *Matrix) Worst(cells []int) (worst int, all result.Verdict) {
	rank := func(i int) float64 { _, _, v, _ := m.Cell(i); return m.rank(v) }
	all = result.Pass
	for _, i := range cells {
		_, _, _, v := m.Cell(i)
		all = result.Worst(all, v)
	}
	return slices.MinFunc(cells, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) }), all
}
