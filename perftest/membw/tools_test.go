package membw

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// TestSizes: shmoo has 81 points, which grow, as bandwidthTest's.
func TestSizes(t *testing.T) {
	got := shmooSizes()
	if len(got) != 81 || got[0] != 1000 || got[80] != 68_000_000 || got[79] != 64_000_000 {
		t.Errorf("%d sizes: %v", len(got), got)
	}
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != 81 {
		t.Errorf("not ascending: %v", got)
	}
	for _, step := range []struct{ from, to, n int }{{0, 20_000, 20}, {20_001, 50_000, 15}, {50_001, 100_000, 5}, {100_001, 1_000_000, 9}, {1_000_001, 16_000_000, 15}, {16_000_001, 32_000_000, 8}, {32_000_001, 68_000_000, 9}} {
		n := 0
		for _, s := range got {
			if s >= step.from && s <= step.to {
				n++
			}
		}
		if n != step.n {
			t.Errorf("%d sizes from %d to %d; want %d", n, step.from, step.to, step.n)
		}
	}
	if got := (&TestOptions{Mode: "range", Start: 1024, End: 4000, Increment: 1024}).sizes(); !slices.Equal(got, []int{1024, 2048, 3072}) {
		t.Errorf("%v", got)
	}
}

// TestBandwidthTest: the output of bandwidthTest, for all forms.
func TestBandwidthTest(t *testing.T) {
	for name, o := range map[string]TestOptions{
		"test-quick.txt":    {Mode: "quick"},
		"test-range.txt":    {Mode: "range", WriteCombined: true, HtoD: true, Start: 5000, End: 20000, Increment: 5000, All: true},
		"test-shmoo.txt":    {Mode: "shmoo", Pageable: true, DtoH: true, Device: 7},
		"test-csv.txt":      {Mode: "quick", WriteCombined: true, CSV: true, Device: 1},
		"test-csv-page.txt": {Mode: "quick", Pageable: true, CSV: true},
	} {
		var b strings.Builder
		if err := o.Run(t.Context(), h200s(2), &b); err != nil {
			t.Error(err)
		}
		golden.Check(t, name, b.String())
	}
}

// TestBandwidthTestMethods: what is timed how.
func TestBandwidthTestMethods(t *testing.T) {
	for _, c := range []struct {
		o    TestOptions
		want timingKind
	}{
		{TestOptions{HtoD: true}, byEvents},
		{TestOptions{DtoH: true, CPUTiming: true}, byStopwatch},
		{TestOptions{Pageable: true, DtoH: true}, eachCall},
		{TestOptions{Pageable: true, DtoD: true}, byEvents},
	} {
		m := h200s(1)
		c.o.Mode, c.o.Start, c.o.End, c.o.Increment = "range", 1, 1, 1
		var b strings.Builder
		if err := c.o.Run(t.Context(), m, &b); err != nil || !strings.HasSuffix(m.asked[0], "1×100 "+string('0'+byte(c.want))) {
			t.Errorf("%+v: %v, %v", c.o, m.asked, err)
		}
	}
}

// TestBandwidthTestFails: wrong data is a failure.
func TestBandwidthTestFails(t *testing.T) {
	m := h200s(1)
	m.fail = func(f Flow) error { return &dataError{Flow: f, Words: 3, First: 8, Of: 32} }
	var b strings.Builder
	err := TestOptions{Mode: "quick", HtoD: true}.Run(t.Context(), m, &b)
	var data *dataError
	if !errors.As(err, &data) || !strings.Contains(b.String(), "Result = FAIL") || !strings.Contains(err.Error(), "3 words of 8 bytes not as sent, the first at byte 8 of 32") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// TestP2P: the output of p2pBandwidthLatencyTest, where two GPUs have no peer
// access; and each pair has it only while it is measured.
func TestP2P(t *testing.T) {
	for name, o := range map[string]P2POptions{"p2p.txt": {Elements: 40_000_000}, "p2p-read-sm.txt": {Elements: 1 << 20, Read: true, SM: true}} {
		m := h200s(3)
		m.apart = [2]int{0, 2}
		plain := m.gbps
		m.gbps = func(f Flow) float64 {
			if f.From.GPU != f.To.GPU && !m.on[[2]int{f.From.GPU, f.To.GPU}] {
				if f.Engine == engineSM {
					t.Errorf("a kernel without peer access: %+v", f)
				}
				return 21.5
			}
			return plain(f)
		}
		var b strings.Builder
		if err := o.Run(t.Context(), m, &b); err != nil {
			t.Error(err)
		}
		golden.Check(t, name, b.String())
		for pair, on := range m.on {
			if on {
				t.Errorf("peer access between %v was left on", pair)
			}
		}
	}
}

// TestP2PFails: a pair that fails loses nothing else.
func TestP2PFails(t *testing.T) {
	m := h200s(2)
	m.fail = func(f Flow) error {
		if f.From.GPU == 0 && f.To.GPU == 1 {
			return errors.New("broken")
		}
		return nil
	}
	var b strings.Builder
	if err := (P2POptions{Elements: 40_000_000}).Run(t.Context(), m, &b); err == nil || strings.Count(b.String(), "   N/A") != 10 || !strings.Contains(b.String(), "NOTE: The CUDA Samples") {
		t.Errorf("%v\n%s", err, &b)
	}
}
