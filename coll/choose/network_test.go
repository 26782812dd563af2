package choose

import (
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/op"
)

func TestNetwork(t *testing.T) {
	const hop = 2700 * time.Nanosecond
	for _, tt := range []struct {
		name       string
		a, b       Network
		rate, port BytesPerSec // in GB/s of the wire, before nicFraction where the device bounds
		latency    time.Duration
	}{
		{"25 Gb/s", Network{Mbit: 25_000}, Network{Mbit: 25_000}, 3.125 * nicFraction, 3.125 * nicFraction, hop},
		{"a core bounds a channel", Network{Mbit: 400_000, Devices: 8}, Network{Mbit: 400_000, Devices: 8}, 8, 400 * nicFraction, hop},
		{"the slower one holds", Network{Mbit: 400_000, Devices: 8}, Network{Mbit: 25_000, Devices: 2, Latency: 10}, 3.125 * nicFraction, 6.25 * nicFraction, hop + 10*time.Microsecond},
		{"not known", Network{}, Network{Mbit: 400_000}, 8, 12 * nicFraction, hop},
		{"a plugin's latency", Network{Mbit: 100_000, Latency: 75}, Network{Mbit: 100_000, Latency: 75}, 8, 12.5 * nicFraction, hop + 75*time.Microsecond},
	} {
		got := tt.a.Slower(tt.b).Transport("IB")
		if other := tt.b.Slower(tt.a).Transport("IB"); other != got {
			t.Errorf("%s: ranks differ: %+v and %+v", tt.name, got, other)
		}
		near := func(a, b BytesPerSec) bool { return max(a-b, b-a) < 1e-6*b }
		if !near(got.LL.Rate, tt.rate*GBps) || !near(got.LL.Port, tt.port*GBps) || got.LL.Latency != tt.latency || got.Name != "IB" {
			t.Errorf("%s: %+v; want a channel of %g GB/s, a host of %g, %v", tt.name, got, tt.rate, tt.port, tt.latency)
		}
	}
}

// TestNetworkFaster: between hosts a fast network takes less time than TCP,
// and what was measured over TCP is not held against it.
func TestNetworkFaster(t *testing.T) {
	tcp := tunerOf(t, testEnv(t, []int{4, 4}, 4, Socket))
	ib := tunerOf(t, testEnv(t, []int{4, 4}, 4, Network{Mbit: 400_000, Devices: 8}.Transport("IB")))
	for c := range op.NumCollectives {
		for _, size := range []int64{8, 64 << 10, 64 << 20} {
			slow := reckon(t, tcp, c, tcp.Pick(c, at(tcp, c, size)), size)
			fast := reckon(t, ib, c, ib.Pick(c, at(ib, c, size)), size)
			if fast >= slow {
				t.Errorf("%v of %d bytes: %.1f µs over IB, %.1f µs over TCP", c, size, fast*1e6, slow*1e6)
			}
		}
	}
}
