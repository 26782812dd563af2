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
