package choose

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMergeFindings(t *testing.T) {
	a, b := Choice{Algorithm: "a", Channels: 1}, Choice{Algorithm: "b", Channels: 2}
	row := func(k Choice, bytes, nanos int64) Row { return Row{k.String(), [][2]int64{{bytes, nanos}}} }
	for _, tt := range []struct {
		in   []finding[Choice]
		want []Row
	}{
		{nil, nil},
		{[]finding[Choice]{{a, 8, 2}, {a, 16, 3}}, []Row{row(a, 16, 3000)}},
		{
			[]finding[Choice]{{a, 8, 2}, {b, 16, 3}, {a, 32, 4.0004}, {b, 64, 5}, {b, 64 << 20, 6}},
			[]Row{row(a, 8, 2000), row(b, 16, 3000), row(a, 32, 4000), row(b, 0, 6000)},
		},
	} {
		if d := cmp.Diff(tt.want, merge(tt.in)); d != "" {
			t.Errorf("merge(%v) (-want +got):\n%s", tt.in, d)
		}
	}
}

// TestFewestBlocks: of choices within 3 % of the fastest one that with the fewest blocks is taken,
// and none that is slower.
func TestFewestBlocks(t *testing.T) {
	choice := func(channels int) Choice { return Choice{Algorithm: "a", Channels: channels} }
	times := map[int]float64{64: 100, 48: 101, 32: 102.9, 16: 103.1, 8: 200}
	s := Search[Choice]{
		Coarse: func(int) (out []Choice) {
			for _, channels := range []int{8, 16, 32, 48, 64} {
				out = append(out, choice(channels))
			}
			return out
		},
		Like:   func(Choice, int) []Choice { return nil },
		Limit:  func(k Choice) Choice { return k },
		Can:    func(Choice, int) bool { return true },
		Time:   func(k Choice, _ int) (float64, error) { return times[k.Channels], nil },
		Blocks: func(k Choice) int { return k.Channels },
	}
	rows, err := s.Rows([]int{1024})
	if want := []Row{{choice(32).String(), [][2]int64{{1024, 102900}}}}; err != nil || cmp.Diff(want, rows) != "" {
		t.Errorf("%v, %v; want %v", rows, err, want)
	}
}
