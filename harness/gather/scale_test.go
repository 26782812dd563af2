package gather

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/assay-hpc/assay/coll/predict/scale/scaletest"
	"github.com/assay-hpc/assay/internal/result"
)

// A cost is what gathering from fake ranks in this process took.
type cost struct {
	seconds      float64
	processor    float64 // seconds of it, in user and system mode
	mostMessages int     // of a rank
	mostBytes    int64
	messages     int // of all, sent and received
	bytes        int64
	level        int
	root         int // bytes of rank 0's summary
}

// gatherAll has n ranks in this process gather their summaries, and rank 0 judge.
func gatherAll(t testing.TB, n int, own fleet) cost {
	t.Helper()
	j := newJob(t, n, 8, 5*time.Minute)
	stats, errs := make([]stats, n), make([]error, n)
	var got *Summary
	var wg sync.WaitGroup
	begun, used := time.Now(), scaletest.Processor(t)
	for r := range n {
		wg.Go(func() {
			sum, st, err := Run(context.Background(), own.summary(r), j.options(r))
			stats[r], errs[r] = st, err
			if r == 0 {
				got = sum
			}
		})
	}
	wg.Wait()
	c := cost{seconds: time.Since(begun).Seconds(), processor: scaletest.Processor(t) - used}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	slow := (n + 992) / 1000 // ranks 7, 1007, …
	if got.Ranks != n || len(got.Missing) > 0 || got.Verdicts[result.Fail] != slow || got.Checks["bandwidth/family3 write"].Worst[0].Object != "GPU 2" {
		t.Fatalf("%d ranks: %d counted, verdicts %v, missing %v", n, got.Ranks, got.Verdicts, got.Missing)
	}
	for _, st := range stats {
		c.mostMessages, c.mostBytes, c.level = max(c.mostMessages, st.Messages), max(c.mostBytes, st.Bytes), max(c.level, st.Level)
		c.messages += st.Messages
		c.bytes += st.Bytes
	}
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	c.root = len(b)
	return c
}

// A fleet is what each rank has found, packed, since thousands of them are in
// this process. A rank unpacks its own when it starts, and Run gives it up when
// it is sent.
type fleet [][]byte

func newFleet(t testing.TB, n int) fleet {
	out := make(fleet, n)
	for r := range out {
		p := packedSummary{Summary: summary(t, r)}
		out[r] = p.encode()
	}
	debug.FreeOSMemory()
	return out
}

func (f fleet) summary(rank int) *Summary {
	p := packedSummary{sent: f[rank]}
	return p.summary()
}

// peak is the most memory that this process has had, in MB.
func peak(t testing.TB) float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("skipped: the most memory used is not known here:", err)
	}
	for line := range strings.Lines(string(b)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			v, err := strconv.ParseFloat(strings.Fields(kb)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v / 1e3
		}
	}
	t.Skip("skipped: the kernel does not tell the most memory used")
	return 0
}

// TestScaleTable prints what gathering costs as ranks grow, and holds it to a
// logarithm.
func TestScaleTable(t *testing.T) {
	list := []int{8, 64, 256}
	if !testing.Short() {
		list = append(list, 512, 1440, 4096)
		for _, n := range []int{8192, 12_500} {
			// Both ends of connections are here, and listeners.
			if files := 9*n/4 + 100; scaletest.Files(files) {
				list = append(list, n)
			} else {
				t.Logf("skipped: %d ranks: the limit of open files (ulimit -n) cannot be raised to %d", n, files)
			}
		}
	}
	all := newFleet(t, list[len(list)-1])
	t.Logf("a certificate has %d bytes", len(document(t, 0)))
	var rows [][]float64
	t.Log("ranks  levels  seconds  processor-s  messages of a rank, at most  kB of a rank, at most  MB of all  kB of the result  peak MB")
	for _, n := range list {
		c := gatherAll(t, n, all)
		t.Logf("%5d  %6d  %7.2f  %11.2f  %27d  %21.0f  %9.1f  %16.0f  %7.0f", n, c.level, c.seconds, c.processor, c.mostMessages, float64(c.mostBytes)/1e3, float64(c.bytes)/2e6, float64(c.root)/1e3, peak(t))
		rows = append(rows, []float64{float64(n), c.seconds, c.processor, float64(c.mostMessages), float64(c.mostBytes), float64(c.bytes) / 2, float64(c.root), peak(t)})
		levels := 0
		for last := 0; last < n-1; levels++ {
			last = 8*last + 8
		}
		if c.level != levels || c.mostMessages > 4*9 {
			t.Errorf("%d ranks: %d levels and %d messages; want %d and at most %d", n, c.level, c.mostMessages, levels, 4*9)
		}
		// A summary has at most so many bytes a check: counts, buckets, the worst.
		if limit := 24 * 16_000; c.root > limit {
			t.Errorf("%d ranks: the result has %d bytes; at most %d are expected", n, c.root, limit)
		}
	}
	scaletest.Record(t, "gathering", []string{"ranks", "seconds", "processor seconds", "messages of a rank", "bytes of a rank", "bytes", "result bytes", "peak MB"}, rows)
}

// BenchmarkGather is certificates gathered and judged.
func BenchmarkGather(b *testing.B) {
	for _, n := range []int{64, 512, 4096} {
		b.Run(fmt.Sprintf("ranks=%d", n), func(b *testing.B) {
			all := newFleet(b, n)
			b.ResetTimer()
			for range b.N {
				c := gatherAll(b, n, all)
				b.ReportMetric(c.seconds, "s")
				b.ReportMetric(c.processor, "processor-s")
				b.ReportMetric(float64(c.messages)/float64(n), "messages/rank")
			}
			b.ReportMetric(peak(b), "peakMB")
		})
	}
}
