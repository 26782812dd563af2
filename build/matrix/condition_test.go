package matrix

import (
	"slices"
	"testing"

	"github.com/assay-hpc/assay/internal/words"
)

func TestConditionHolds(t *testing.T) {
	for _, c := range []struct {
		condition, version string
		want               bool
	}{
		{">=12.8", "12.8.1", true},
		{">=12.8", "12.6.3", false},
		{"<12.8", "12.8.1", false},
		{"<=2.23", "2.23.1", true}, // compared only as far as it is written out
		{">2.23", "2.23.1", false},
		{"12", "12.9.1", true},
		{"=12.9", "12.9.1", true},
		{"12.9", "12.10.0", false},
		{">=12.8 <13", "12.9.1", true},
		{">=12.8 <13", "13.0.2", false},
		{"<4", "1:4.6.0-1", false}, // Debian's epoch is no part of it
		{"<4", "3.3.6", true},
		{">=2.27.6-1", "2.27.6-1", true},
		{">=2.27.6-2", "2.27.6-1", false},
		{">=2.5.1", "2.5", false},
		{">=10", "9.0", false},
		{">=0", "distro", false},
		{"<9", "2cbb968", false},
		{"12.8.2 | 12.9.2 | >=13.2", "12.8.2", true},
		{"12.8.2 | 12.9.2 | >=13.2", "12.8.1", false},
		{"12.8.2 | 12.9.2 | >=13.2", "13.1.2", false},
		{"12.8.2 | 12.9.2 | >=13.2", "13.4.2", true},
		{"<12.4 | >=12.8 <13", "12.6.3", false}, // a space binds more than a bar
		{"<12.4 | >=12.8 <13", "12.2.2", true},
		{"<12.4 | >=12.8 <13", "13.0.2", false},
	} {
		got := condition{alternatives: parseAlternatives(c.condition)}.holds(c.version)
		if got != c.want {
			t.Errorf("condition %q holds(%q) = %v; want %v", c.condition, c.version, got, c.want)
		}
	}
}

func TestConditionPattern(t *testing.T) {
	for text, want := range map[string]bool{
		">=12.8 <13": true, "20.04": true, "=1": true, "2.27.6-1": true, "12.8.2 | >=13": true, "<12 | >=12.8 <13 | 14": true,
		"|": false, "12 |": false, "| 12": false, "12 | | 13": false, "12|13": false,
		"": false, ">= 12": false, "=>12": false, "12.": false, "12 ": false, "12.x": false, "distro": false,
	} {
		if got := conditionPattern.MatchString(text); got != want {
			t.Errorf("pattern takes %q = %v; want %v", text, got, want)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	want := []string{"2.9", "2.10.0-1", "2.27.6-1", "2.30.4-1", "1:4.6.0-1", "13.0.2"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, CompareVersions)
	if !slices.Equal(got, want) {
		t.Errorf("sorted = %v; want %v", got, want)
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ s, want string }{
		{"ncll", "nccl"}, {"harnes", "harness"}, {"nccl-test", "nccl-tests"}, {"rdmacore", "rdma-core"}, {"", "efa"},
	} {
		if got := words.Nearest(c.s, library().Names()); got != c.want {
			t.Errorf("words.Nearest(%q) = %q; want %q", c.s, got, c.want)
		}
	}
	if got := words.Nearest("x", nil); got != "" {
		t.Errorf("nearest of none = %q; want nothing", got)
	}
}

func TestNearestVersion(t *testing.T) {
	for _, c := range []struct {
		v          string
		candidates []string
		want       string
	}{
		{"20.04", []string{"24.04", "22.04"}, "22.04"},
		{"2.26", []string{"2.22.1", "2.23"}, "2.23"},
		{"2.26", nil, ""},
	} {
		if got := nearestVersion(c.v, c.candidates); got != c.want {
			t.Errorf("nearestVersion(%q, %v) = %q; want %q", c.v, c.candidates, got, c.want)
		}
	}
}
