package perf

import (
	_ "image/png"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-hpc/assay/coll/flip"
)

func TestMeasureRoundTrip(t *testing.T) {
	for _, m := range []measure{{}, {elapsed: time.Second, wrong: -1}, {elapsed: 1, issued: 4, wrong: 3, chosen: "ring/simple", flips: []flipped{{flip.Wrong{Sent: true, Element: 5, Got: 6, Want: 7}, []uint64{8, 9}}}, samples: []time.Duration{1, 2, 3}}} {
		got, err := decodeMeasure(m.encode())
		if d := cmp.Diff(m, got, cmp.AllowUnexported(measure{}, flipped{})); d != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, d)
		}
	}
}

// FuzzDecodeMeasure: what is accepted is encoded as it came.
func FuzzDecodeMeasure(f *testing.F) {
	m := measure{elapsed: 1, issued: 4, wrong: 3, chosen: "tree", flips: []flipped{{flip.Wrong{Element: 5}, []uint64{8, 9}}}, samples: []time.Duration{4}}
	f.Add(m.encode())
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMeasure(b)
		if err == nil && string(m.encode()) != string(b) {
			t.Errorf("decodeMeasure(%x) encodes as %x", b, m.encode())
		}
	})
}

// FuzzIntroduction: no introduction does harm.
func FuzzIntroduction(f *testing.F) {
	x := introduction{Host: "a", Name: "b", hostID: 1, memory: 2}
	b, _ := x.encode()
	f.Add(b)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x introduction
		if err := x.decode(b, true); err == nil && memoryLimit([]introduction{x}, 1) < 0 {
			t.Errorf("%x gives a negative limit", b)
		}
	})
}

func TestIterStats(t *testing.T) {
	us := func(v ...int) (d []time.Duration) {
		for _, x := range v {
			d = append(d, time.Duration(x)*time.Microsecond)
		}
		return d
	}
	ms := []measure{{samples: us(100, 1, 2, 3, 4)}, {samples: us(1, 2, 1, 1, 9)}}
	got := iterStats(ms, []int{0, 1}, 1)
	want := &IterStats{
		Skipped: 1, Min: 2, Max: 9, Mean: 4, P50: 3, P95: 9, P99: 9, Stdev: math.Sqrt(8.5), CV: 25 * math.Sqrt(8.5), Times: []float64{100, 2, 2, 3, 9},
		byProcess: [][]float64{{100, 1, 2, 3, 4}, {1, 2, 1, 1, 9}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(IterStats{})); d != "" {
		t.Errorf("iterStats (-want +got):\n%s", d)
	}
	if iterStats([]measure{{}}, []int{0}, 0) != nil {
		t.Error("statistics of no samples")
	}
	if got := nearestRank([]float64{1, 2, 3, 4}, 50); got != 2 {
		t.Errorf("nearestRank = %v; want 2", got)
	}
}

func TestAverage(t *testing.T) {
	v := []float64{3, 1, 8}
	for a, want := range map[Average]float64{RankZero: 3, Mean: 4, Minimum: 1, Maximum: 8} {
		if got := a.of(v); got != want {
			t.Errorf("average %d = %v; want %v", a, got, want)
		}
	}
}

func TestStraggler(t *testing.T) {
	ms := []measure{{elapsed: 1000}, {elapsed: 9000}, {elapsed: 3000}}
	if got := straggler(ms, 2); got != (Straggler{1, 3}) {
		t.Errorf("straggler = %+v", got)
	}
}

// TestSlowest: a rank that stalls in an iteration, and one that waits for it.
func TestSlowest(t *testing.T) {
	us := func(n ...time.Duration) (out []time.Duration) {
		for _, d := range n {
			out = append(out, d*time.Microsecond)
		}
		return out
	}
	ms := []measure{
		{elapsed: 400 * time.Microsecond, issued: 7 * time.Microsecond, samples: us(2, 3, 2)},
		{elapsed: 390 * time.Microsecond, issued: 309 * time.Microsecond, samples: us(2, 305, 2)},
	}
	want := []Step{{0, -1, 393}, {1, 1, 305}, {1, -1, 81}, {0, 1, 3}}
	if d := cmp.Diff(want, slowest(ms, 4, 1)); d != "" {
		t.Errorf("slowest (-want +got):\n%s", d)
	}
	if got := slowest(ms, 1, 2)[0]; got != (Step{0, -1, 786}) {
		t.Errorf("of two launches of a graph: %v", got)
	}
	if got := slowest(ms, 99, 1); len(got) != 8 {
		t.Errorf("of 99 there are %d; want 8", len(got))
	}
	if got := slowest(ms, 0, 1); got != nil {
		t.Errorf("without --slowest: %v", got)
	}
}

func TestAvailable(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	meminfo := file("MemFree: 1 kB\nMemAvailable:   1000 kB\n")
	for name, tt := range map[string]struct {
		root fstest.MapFS
		want int64
	}{
		"nothing":   {fstest.MapFS{}, math.MaxInt64},
		"meminfo":   {fstest.MapFS{"proc/meminfo": meminfo}, 1000 << 10},
		"no limit":  {fstest.MapFS{"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/a\n"), "sys/fs/cgroup/a/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.current": file("5\n")}, 1000 << 10},
		"version 2": {fstest.MapFS{"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/memory.max": file("5000\n"), "sys/fs/cgroup/a/memory.current": file("3000\n"), "sys/fs/cgroup/a/memory.stat": file("anon 1\ninactive_file 1000\n")}, 3000},
		"full":      {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("5000\n"), "sys/fs/cgroup/memory.current": file("9000\n")}, 0},
		"version 1": {fstest.MapFS{"proc/meminfo": meminfo, "proc/self/cgroup": file("5:cpu:/x\n4:hugetlb,memory:/a\n"), "sys/fs/cgroup/memory/a/memory.limit_in_bytes": file("5000\n"), "sys/fs/cgroup/memory/a/memory.usage_in_bytes": file("1000\n")}, 4000},
		"garbage":   {fstest.MapFS{"proc/meminfo": file("MemAvailable: lots\n"), "proc/self/cgroup": file("\x00::::/../../..\nx")}, math.MaxInt64},
	} {
		if got := available(tt.root); got != tt.want {
			t.Errorf("%s: %d; want %d", name, got, tt.want)
		}
	}
	if got := fits(8<<20, 2); got != (7<<20)/4-2*guard {
		t.Errorf("fits = %d", got)
	}
	if got := fits(1000, 64); got != 0 {
		t.Errorf("fits = %d; want 0", got)
	}
}

func TestMemoryLimit(t *testing.T) {
	ranks := []introduction{{pool: 1, memory: 1 << 30}, {pool: 2, memory: 1 << 20}, {pool: 1, memory: 1 << 29}}
	for kinds := 1; kinds < 3; kinds++ {
		if got, want := memoryLimit(ranks, kinds), min(fits(1<<29, 2*kinds), fits(1<<20, kinds)); got != want {
			t.Errorf("memoryLimit of %d kinds = %d; want %d", kinds, got, want)
		}
	}
}

func TestProcessor(t *testing.T) {
	if got := processor(fstest.MapFS{}, "arm64"); got != "arm64 processor" {
		t.Errorf("processor = %q", got)
	}
}

func TestDevicesAreCutOff(t *testing.T) {
	var ranks []introduction
	for i := range 100 {
		ranks = append(ranks, introduction{Host: "h", Process: i / 50, Name: "processor"})
	}
	s := devices(ranks)
	if n := strings.Count(s, "...\n"); n != 2 || len(s) != 2*2048 {
		t.Errorf("%d cuts, %d bytes:\n%s", n, len(s), s)
	}
}

func TestGigabytes(t *testing.T) {
	for n, want := range map[float64]string{4e9: "4.0", 4e6: "0.004", 67108864: "0.0671", 12345678901: "12.3", 1e12: "1000.0", 65536: "0.0000655"} {
		if got := gigabytes(n); got != want {
			t.Errorf("gigabytes(%v) = %s; want %s", n, got, want)
		}
	}
}

// TestSeedForms: the summaries in the words of those that people publish.
func TestSeedForms(t *testing.T) {
	s := &ShapeResult{Collective: "all_reduce", Bytes: 500000 * 2000 * 4, Trials: 50, Ranks: 16, AlgBW: 239.742, BusBW: 449.515}
	const shape = "The average bandwidth of all_reduce with a 4.0GB payload (50 trials, 16 ranks):\n algbw: 239.742 GBps (1917.9 Gbps)\n busbw: 449.515 GBps (3596.1 Gbps)\n"
	if got := s.String(); got != shape {
		t.Errorf("got\n%s\nwant\n%s", got, shape)
	}
	p := &SplitResult{Parts: 1000, Whole: 4e9, Part: 4e6, One: 1257.165 / 8, Many: 374.391 / 8}
	const split = "----- 1x 4.0GB -----\nbusbw: 1257.165 Gbps\n\n----- 1000x 0.004GB -----\nbusbw: 374.391 Gbps\n\nratio: 3.36\n"
	if got := p.String(); got != split {
		t.Errorf("got\n%s\nwant\n%s", got, split)
	}
}

func TestPowerOfTwo(t *testing.T) {
	for e, want := range map[int]string{0: "1", 3: "8", 10: "1K", 26: "64M", 33: "8G", 44: "16T"} {
		if got := powerOfTwo(e); got != want {
			t.Errorf("powerOfTwo(%d) = %s; want %s", e, got, want)
		}
	}
}
