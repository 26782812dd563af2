package predict

import (
	"math"
	"testing"
	"time"
)

func TestInSwitchByHand(t *testing.T) {
	one := Topology{Ranks: 8, Port: GBps}
	two := Topology{Ranks: 8, Domain: 4, Port: GBps, Uplink: 2 * GBps, UplinkLatency: 100}
	for _, tt := range []struct {
		name  string
		t     Topology
		sw    Switch
		bytes int64
		want  time.Duration
	}{
		// Both phases of 4 windows overlap but for one.
		{"windows", one, Switch{Rate: GBps, Window: 1000}, 4000, 4000 + 1000},
		{"one window", one, Switch{Rate: GBps, Window: 1 << 20}, 4000, 2 * 4000},
		// The second phase has its last, half window when the one before is done.
		{"the last is half", one, Switch{Rate: GBps, Window: 1000}, 3500, 1000 + 3500},
		// Between: up 500 bytes of each tree, and down, at 0.5 ns and 100 ns of latency.
		{"two domains, one window", two, Switch{Rate: GBps, Window: 1000}, 1000, 1000 + 2*(250+100) + 1000},
		{"two domains, windows", two, Switch{Rate: GBps, Window: 1000}, 8000, 8000 + 2*(250+100) + 1000},
	} {
		if got, err := inSwitch(tt.t, tt.sw, tt.bytes); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

// TestInSwitchBounds: for any number of domains the time is that of what is
// slowest, and not much more when the data are large.
func TestInSwitchBounds(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8, 13, 20} {
		topo := Topology{Ranks: 8 * n, Domain: 8, Port: 400 * GBps, Uplink: 300 * GBps, UplinkLatency: 10 * time.Microsecond}
		sw := Switch{Rate: 300 * GBps, Window: 4 << 20}
		const bytes = 1 << 30
		got, err := inSwitch(topo, sw, bytes)
		if err != nil {
			t.Fatalf("%d domains: %v", n, err)
		}
		through := 2.0 // of an inner node's uplink
		if n == 2 {
			through = 1
		}
		best := through * bytes / 300e9
		if s := got.Seconds(); s < best*float64(n-1)/float64(n) || s > 1.15*best+0.0005 {
			t.Errorf("%d domains: %.4f s; want about %.4f", n, s, best)
		}
	}
}

// TestDoubleTree: both are trees, and the leaves of one work in the other.
func TestDoubleTree(t *testing.T) {
	for n := 2; n <= 100; n++ {
		inner := make([]int, n)
		for tree := range 2 {
			parent := doubleTree(n, tree)
			kids := make([]int, n)
			roots := 0
			for d, p := range parent {
				if p < 0 {
					roots++
					continue
				}
				kids[p]++
				steps := 0
				for x := d; x >= 0; x = parent[x] {
					if steps++; steps > n {
						t.Fatalf("n=%d, tree %d: node %d has no way to the root", n, tree, d)
					}
				}
				if limit := 2 + int(math.Log2(float64(n))); steps > limit {
					t.Errorf("n=%d, tree %d: node %d is %d deep; want at most %d", n, tree, d, steps, limit)
				}
			}
			for d, k := range kids {
				if k > 2 {
					t.Errorf("n=%d, tree %d: node %d has %d children", n, tree, d, k)
				}
				if k > 1 {
					inner[d]++
				}
			}
			if roots != 1 {
				t.Errorf("n=%d, tree %d: %d roots", n, tree, roots)
			}
		}
		for d, k := range inner {
			if k > 1 {
				t.Errorf("n=%d: node %d has two children in both trees", n, d)
			}
		}
	}
}
