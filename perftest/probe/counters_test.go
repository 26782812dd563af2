//go:build cgo && linux

package probe

import (
	"math"
	"testing"
)

func TestCPU(t *testing.T) {
	before := parseCPU("cpu  100 5 30 1000 7 0 3 0 0 0\ncpu0 1 2 3 4\n")
	after := parseCPU("cpu  130 5 90 1090 7 0 3 0 0 0\n")
	if got := after.percentSince(before); got != 25 {
		t.Errorf("%v %% of the time, want 25", got)
	}
	if got := before.percentSince(after); got != 0 {
		t.Errorf("a clock that went back: %v %%", got)
	}
	for _, text := range []string{"", "cpu", "intr 1 2 3 4 5"} {
		if got := parseCPU(text); got != (cpuTime{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestShortest holds what perftest calls the peak against its definition.
func TestShortest(t *testing.T) {
	posts := []uint64{0, 10, 20, 30}
	// The second message is not signalled; from the third post to the fourth
	// completion two messages take 15 each.
	completions := []uint64{40, 0, 70, 50}
	if got := shortest(posts, completions); got != 12.5 {
		t.Errorf("%v cycles, want 12.5: four messages from 0 to 50", got)
	}
	if got := shortest(nil, nil); !math.IsInf(got, 1) {
		t.Errorf("of no messages: %v", got)
	}
}

// TestHistogramOfCycles: the loop's buckets keep a latency to 3 %.
func TestHistogramOfCycles(t *testing.T) {
	r := &runner{clock: &clock{rate: 2}}
	for _, cycles := range []uint64{3, 100, 5000, 1 << 20, 123456789} {
		power := 63
		for cycles>>power == 0 {
			power--
		}
		fraction := 0
		if power >= 5 {
			fraction = int(cycles>>(power-5)) & 31
		} else {
			fraction = int(cycles<<(5-power)) & 31
		}
		buckets := make([]uint32, 64*32)
		buckets[power*32+fraction] = 7
		h := r.histogram(buckets)
		got, want := h.Quantile(0.5), float64(cycles)/2
		if h.Count() != 7 || math.Abs(got-want) > max(0.03*want, 1) {
			t.Errorf("%d cycles are %v ns %d times, want %v 7 times", cycles, got, h.Count(), want)
		}
	}
}

func TestClock(t *testing.T) {
	c := newClock()
	if c.rate <= 0 || c.rate > 20 {
		t.Fatalf("%v cycles a nanosecond", c.rate)
	}
	if got := c.ns(c.of(1e9)); math.Abs(got-1e9) > 1 {
		t.Errorf("a second is %v ns", got)
	}
}
