package words

import (
	"fmt"
	"testing"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 checks", 1: "1 check", 2: "2 checks", -1: "-1 checks"} {
		if got := Count(n, "check"); got != want {
			t.Errorf("Count(%d) = %q; want %q", n, got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		numbers []int
		want    string
	}{{nil, "[]"}, {[]int{3}, "[3]"}, {[]int{0, 1, 2, 3, 7}, "[0-3 7]"}, {[]int{0, 2, 3}, "[0 2-3]"}} {
		if got := fmt.Sprint(Ranges(c.numbers)); got != c.want {
			t.Errorf("%v are %s; want %s", c.numbers, got, c.want)
		}
	}
}
