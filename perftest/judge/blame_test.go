package judge

import (
	"fmt"
	"slices"
	"testing"

	"github.com/assay-hpc/assay/internal/result"
)

// all is a matrix of all pairs; value 0 is none, and negative ones were not applicable.
func all(n int, lower bool, value func(from, to int) float64) *Matrix {
	type cell struct {
		from, to int
		value    float64
		v        result.Verdict
	}
	var cells []cell
	for from := range n {
		for to := range n {
			if from == to {
				continue
			}
			v := value(from, to)
			c := cell{from, to, max(v, 0), result.Pass}
			switch {
			case v < 0:
				c.v = result.Skip
			case lower != (v < 10) || v == 0:
				c.v = result.Fail
			}
			cells = append(cells, c)
		}
	}
	return &Matrix{Members: n, Cells: len(cells), Limits: Limits{Lower: lower}, Cell: func(i int) (int, int, float64, result.Verdict) {
		return cells[i].from, cells[i].to, cells[i].value, cells[i].v
	}}
}

// members are suspects of one member each, in both directions.
func members(n int) (out []Suspect) {
	for i := range n {
		out = append(out, Suspect{Members: []int{i}, Sends: true, Receives: true})
	}
	return out
}

// TestBlame: the worst suspect explains what it shares with others, and what was not
// applicable speaks for nobody.
func TestBlame(t *testing.T) {
	slow := func(low, high float64, bad map[int]float64) func(from, to int) float64 {
		return func(from, to int) float64 {
			v := high
			for _, m := range []int{from, to} {
				if b, ok := bad[m]; ok && (b == 0 || v != 0 && (b-v)*(high-low) < 0) {
					v = b
				}
			}
			return v
		}
	}
	for _, tt := range []struct {
		name  string
		lower bool
		value func(from, to int) float64
		want  []string // culprits and how many cells each explains
		left  int
	}{
		{"none", false, slow(1, 20, nil), nil, 0},
		{"one", false, slow(1, 20, map[int]float64{2: 5}), []string{"2: 8"}, 0},
		{"the slower one first", false, slow(1, 20, map[int]float64{1: 9, 3: 1}), []string{"3: 8", "1: 6"}, 0},
		{"the dead one first", false, slow(1, 20, map[int]float64{1: 9, 3: 0}), []string{"3: 8", "1: 6"}, 0},
		{"latencies", true, slow(90, 2, map[int]float64{1: 30, 3: 90}), []string{"3: 8", "1: 6"}, 0},
		{"latencies, a dead one", true, slow(90, 2, map[int]float64{1: 90, 3: 0}), []string{"3: 8", "1: 6"}, 0},
		{"one other end alone", false, func(from, to int) float64 {
			if from+to == 1 { // 0 has only been measured with 1
				return 5
			}
			if from == 0 || to == 0 {
				return -1
			}
			return 20
		}, nil, 2},
	} {
		m := all(5, tt.lower, tt.value)
		found, left := m.Blame(members(5))
		var got []string
		for _, c := range found {
			got = append(got, fmt.Sprintf("%d: %d", c.Suspect, len(c.Cells)))
		}
		if !slices.Equal(got, tt.want) || len(left) != tt.left {
			t.Errorf("%s: %q, %d left; want %q, %d", tt.name, got, len(left), tt.want, tt.left)
		}
	}
}

// BenchmarkBlame has all pairs of 1,024 members, a tenth of which are bad.
func BenchmarkBlame(b *testing.B) {
	m := all(1024, false, func(from, to int) float64 {
		if from%10 == 3 || to%10 == 3 {
			return 5
		}
		return 20
	})
	suspects := members(1024)
	for b.Loop() {
		m.Blame(suspects)
	}
}
