package result

import "testing"

func TestBetterOf(t *testing.T) {
	for _, tt := range []struct {
		name, check, quantity, unit string
		limit                       LimitKind
		want                        Better
	}{
		{"by the figure's name", "own/x", "highest temperature", "°C", "", Lower},
		{"the name's second figure", "own/x", "mean clock 2", "MHz", "", Higher},
		{"by the check", "bandwidth/host_latency", "", "ns", "", Lower},
		{"by the check, below another id", "after/gpu/temperature/margin", "", "°C", "", Higher},
		{"not by a limit on the wrong side", "bandwidth/host_latency", "", "ns", "atLeast", Lower},
		{"a name in another unit", "own/write", "write", "us", "", Lower},
		{"a check that is not known, by its limit", "own/x", "", "widgets", "atMost", Lower},
		{"the limit before the unit", "own/x", "", "°C", "atLeast", Higher},
		{"by the unit", "mesh", "", "Gb/s", "", Higher},
		{"unknown", "own/x", "y", "widgets", "", Unknown},
		{"nothing", "", "", "", "", Unknown},
	} {
		if got := BetterOf(tt.check, tt.quantity, tt.unit, tt.limit); got != tt.want {
			t.Errorf("%s: BetterOf(%q, %q, %q, %q) = %v; want %v", tt.name, tt.check, tt.quantity, tt.unit, tt.limit, got, tt.want)
		}
	}
}

// TestTable: each entry is whole, and there once.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, q := range table {
		if q.Name == "" || q.Unit == "" || q.Kind == "" || q.Better == Unknown {
			t.Errorf("%+v is not complete", q)
		}
		if seen[q.Name] {
			t.Errorf("%q is there twice", q.Name)
		}
		seen[q.Name] = true
		if b, ok := units[q.Unit]; ok && b != q.Better && q.Unit != "°C" {
			t.Errorf("%q is better on another side than its unit, %s", q.Name, q.Unit)
		}
	}
}
