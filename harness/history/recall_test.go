package history

import (
	"slices"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// TestRecall: what fails now is named with the days on which it failed before, wherever the GPU was then.
func TestRecall(t *testing.T) {
	for _, tt := range []struct {
		name string
		runs [][2]int     // for each day the machine, and the index of the GPU that fails there; -1 for none
		move map[int]bool // days on which GPU-0-1 is GPU 5 of the second machine
		want []string
	}{
		{"the first time", [][2]int{{0, -1}, {0, 1}}, nil, nil},
		{"still", [][2]int{{0, -1}, {0, 1}, {0, 1}}, nil, nil},
		{"it is well", [][2]int{{0, 1}, {0, -1}, {0, 1}, {0, -1}}, nil, nil},
		{"again", [][2]int{{0, 1}, {0, -1}, {0, 1}}, nil, []string{"GPU 1 failed 2 times, and passed in between (2026-03-01, 2026-03-03)"}},
		{"six times", [][2]int{{0, 1}, {0, -1}, {0, 1}, {0, -1}, {0, 1}, {0, -1}, {0, 1}, {0, -1}, {0, 1}, {0, -1}, {0, 1}}, nil, []string{"GPU 1 failed 6 times, and passed in between (…, 2026-03-05, 2026-03-07, 2026-03-09, 2026-03-11)"}},
		{"another GPU", [][2]int{{0, 1}, {0, -1}, {0, 2}}, nil, nil},
		{"another machine", [][2]int{{1, 1}, {1, -1}, {1, 1}, {0, -1}, {0, 1}}, nil, nil},
		{"it was in another machine", [][2]int{{0, 1}, {0, -1}, {1, 5}}, map[int]bool{2: true}, []string{"GPU 5 failed 2 times, and passed in between (2026-03-01, 2026-03-03)"}},
	} {
		var all []*certificate.Statement
		for d, run := range tt.runs {
			st := host(t, newRand(), run[0], d, 0.004, func(int) float64 { return 1 })
			p := &st.Predicate
			if tt.move[d] {
				p.Node.GPUs[5].UUID, p.Results[0].Objects[5].ID = "GPU-0-1", "GPU-0-1"
			}
			if run[1] >= 0 {
				p.Results[0].Verdict, p.Results[0].Reason = result.Fail, "slow"
				p.Results[0].Objects[run[1]].Verdict, p.Results[0].Objects[run[1]].Reason = result.Fail, "slow"
			}
			p.Verdict = result.Summary(p.Results)
			all = append(all, st)
		}
		now := all[len(all)-1]
		r := NewRecall(now)
		slices.Reverse(all) // in any order, and the certificate itself may be among them
		for _, st := range all {
			r.Add(st)
		}
		var got []string
		for _, o := range r.Again() {
			got = append(got, o.When())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q; want %q", tt.name, got, tt.want)
		}
	}
}
