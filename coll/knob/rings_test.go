package knob

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseRings(t *testing.T) {
	for in, want := range map[string][][]int{
		"0 1 2 3 | 3 2 1 0": {{0, 1, 2, 3}, {3, 2, 1, 0}},
		"0-1-2|2-1-0":       {{0, 1, 2}, {2, 1, 0}},
		"0,1;2":             {{0, 1, 2}},
		"0→1→2":             {{0, 1, 2}},
		"0 1|":              {{0, 1}},
		"||0||":             {{0}},
		"00 01":             {{0, 1}},
		"0 0":               {{0, 0}},
		"16777216":          {{16777216}},
	} {
		got, err := parseRings(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", in, d)
		}
	}
	for _, in := range []string{"", "|", "a b", "99999999999999999999999", "0 16777217"} {
		if got, err := parseRings(in); err == nil {
			t.Errorf("%q gives %v; want an error", in, got)
		}
	}
}

func TestRingsFor(t *testing.T) {
	for _, c := range []struct {
		rings   string
		ranks   int
		want    [][]int
		leftOut int
	}{
		{"0 1 2 3 | 3 2 1 0", 4, [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}}, 0},
		{"0 1 2 3 | 1 0 | 2 0 1 3", 2, [][]int{{1, 0}}, 2},
		{"0 1 2", 4, nil, 1},
		{"0 1 2 4", 4, nil, 1},
		{"0 1 2 3 | 0 1 1 3", 4, [][]int{{0, 1, 2, 3}}, 1},
		{"0 0", 1, nil, 1},
	} {
		k, _, err := Load([]string{"NCCL_RINGS=" + c.rings}, noFiles)
		if err != nil {
			t.Fatal(err)
		}
		if got, leftOut := k.RingsFor(c.ranks); leftOut != c.leftOut || !cmp.Equal(got, c.want) {
			t.Errorf("%q for %d ranks: %v, %d left out; want %v, %d", c.rings, c.ranks, got, leftOut, c.want, c.leftOut)
		}
	}
	if got, leftOut := Default().RingsFor(4); got != nil || leftOut != 0 {
		t.Errorf("nothing set: %v, %d", got, leftOut)
	}
}

// FuzzParseRings: what is accepted, written plainly, reads back the same.
func FuzzParseRings(f *testing.F) {
	for _, s := range []string{"0 1 2 3 | 3 2 1 0", "0-1|1-0", "|", "9999999999", "0→1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		rings, err := parseRings(in)
		if err != nil {
			return
		}
		var parts []string
		for _, ring := range rings {
			if len(ring) == 0 {
				t.Fatal("an empty ring")
			}
			parts = append(parts, strings.Trim(fmt.Sprint(ring), "[]"))
		}
		again, err := parseRings(strings.Join(parts, "|"))
		if err != nil || !cmp.Equal(rings, again) {
			t.Fatalf("%q gives %v, which reads back as %v, %v", in, rings, again, err)
		}
	})
}
