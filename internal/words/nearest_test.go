package words

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"nccl", "nccl-tests", "hpcx", "harness"}
	for in, want := range map[string]string{"ncll": "nccl", "ncl-tests": "nccl-tests", "hpc": "hpcx", "harnes": "harness"} {
		if got := Nearest(in, names); got != want {
			t.Errorf("Nearest(%q) = %q; want %q", in, got, want)
		}
	}
	platforms := []string{"a40", "h20", "gb200-nvl72", "hgx-h100-ndr400", "h100-pcie", "hgx-a100"}
	for in, want := range map[string]string{"h100": "h100-pcie", "H100": "h100-pcie", "ndr400": "hgx-h100-ndr400", "a100": "hgx-a100", "a4": "a40", "a41": "a40", "gb200": "gb200-nvl72", "---": "a40"} {
		if got := Nearest(in, platforms); got != want {
			t.Errorf("Nearest(%q) = %q; want %q", in, got, want)
		}
	}
	if got := Nearest("x", nil); got != "" {
		t.Errorf("Nearest(x, nil) = %q; want none", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"same", "same", 0}} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d; want %d", c.a, c.b, got, c.want)
		}
	}
}
