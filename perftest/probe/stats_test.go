package probe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// TestLatencies: perftest's rules, on numbers that one can follow.
func TestLatencies(t *testing.T) {
	// 100 values 2000, 2010, …: m is 98, so s[98] and the 99th percentile are
	// the second largest.
	var d []int64
	for i := range 100 {
		d = append(d, 2000+10*int64(i))
	}
	rand.Shuffle(len(d), func(i, j int) { d[i], d[j] = d[j], d[i] })
	first := slices.Clone(d)
	r := newLatency(2, 101, d, 2)
	if !slices.Equal(d, first) || r.Samples[0] != float64(d[0])/2 {
		t.Error("the samples were put in order")
	}
	want := LatencyResult{Bytes: 2, Iterations: 101, Min: 1000, Max: 1490, Typical: 1242.5, Average: 1242.5, P99: 1490, P999: 1490}
	if r.Min != want.Min || r.Max != want.Max || r.Typical != want.Typical || r.Average != want.Average || r.P99 != want.P99 || r.P999 != want.P999 || r.Bytes != 2 || r.Iterations != 101 {
		t.Errorf("got %+v\nwant %+v", r, want)
	}
	if got, want := r.Stdev, 5*math.Sqrt((98*98-1)/12.0); math.Abs(got-want) > 1e-9 { // of evenly spaced values
		t.Errorf("stdev %v; want %v", got, want)
	}
	// One way and there and back.
	if one := newLatency(2, 101, d, 1); one.Min != 2000 || one.Average != 2485 {
		t.Errorf("undivided: %+v", one)
	}
	// The two largest are seen in none but the second in Max.
	r = newLatency(2, 6, []int64{10, 10, 10, 1000, 5000}, 1)
	if r.Max != 1000 || r.Average != 10 || r.Stdev != 0 || r.Typical != 10 {
		t.Errorf("outliers: %+v", r)
	}
	for n := range 4 {
		r := newLatency(2, 5, make([]int64, n), 2)
		if math.IsNaN(r.Average) || math.IsNaN(r.Stdev) || r.Max != 0 {
			t.Errorf("%d samples: %+v", n, r)
		}
	}
}

func TestTimedLatency(t *testing.T) {
	h := new(histogram)
	for range 100 {
		h.Add(3000)
	}
	r := timedLatency(64, 100, time.Millisecond, h, 2)
	if r.Average != 5000 || r.TPS != 100000 || r.Min != 1500 || r.Max != 1500 || r.P99 != 1500 || r.Stdev != 0 {
		t.Errorf("%+v", r)
	}
	r = timedLatency(64, 0, time.Second, nil, 2)
	if r.Average != 0 || r.TPS != 0 || !math.IsNaN(r.Quantile(0.5)) {
		t.Errorf("nothing: %+v", r)
	}
}

// TestBuckets: they follow one another without gap, and every value lies in
// its own.
func TestBuckets(t *testing.T) {
	next := int64(0)
	for i := range buckets {
		from, to := bounds(i)
		if from != next || to <= from {
			t.Fatalf("bucket %d is %d..%d; the one before ended at %d", i, from, to, next)
		}
		if got := bucket(uint64(from)); got != i {
			t.Fatalf("%d lies in bucket %d, not %d", from, got, i)
		}
		if got := bucket(uint64(to - 1)); got != i {
			t.Fatalf("%d lies in bucket %d, not %d", to-1, got, i)
		}
		if width := float64(to-from) / float64(max(from, 1)); from >= exact && width > 1.0/64 {
			t.Fatalf("bucket %d is %.3f of its value wide", i, width)
		}
		next = to
	}
	if next != 1<<topBits {
		t.Errorf("the last ends at %d", next)
	}
}

// TestHistogram against sorting: percentiles within a bucket's width, moments
// exactly.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var h histogram
		var v []float64
		for range 1 + r.IntN(5000) {
			x := int64(math.Exp(r.NormFloat64()*2 + 9))
			h.Add(x)
			v = append(v, float64(x))
		}
		slices.Sort(v)
		mean, stdev := stat.Moments(v)
		if math.Abs(h.Mean()-mean) > 1e-6*mean || math.Abs(h.Stdev()-stdev) > 1e-6*mean {
			t.Errorf("mean %v, stdev %v; want %v, %v", h.Mean(), h.Stdev(), mean, stdev)
		}
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
			want := v[max(0, int(math.Ceil(q*float64(len(v))))-1)]
			if got := h.Quantile(q); math.Abs(got-want) > want/64+1 {
				t.Errorf("quantile %v = %v; want %v", q, got, want)
			}
		}
		var n uint64
		last := -1.0
		for _, k := range h.Buckets(2) {
			if k.From < last || k.To <= k.From || k.Count == 0 {
				t.Errorf("bucket %+v after %v", k, last)
			}
			last, n = k.To, n+k.Count
		}
		if n != h.Count() || n != uint64(len(v)) {
			t.Errorf("%d in buckets, %d counted, %d there", n, h.Count(), len(v))
		}
	}
	var h histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Stdev() != 0 || h.Buckets(1) != nil {
		t.Error("an empty histogram has values")
	}
	h.Add(-5)
	h.Add(math.MaxInt64)
	if h.Quantile(0) != 0 || h.Quantile(1) != 1<<topBits-1 {
		t.Errorf("ends: %v, %v", h.Quantile(0), h.Quantile(1))
	}
}

func BenchmarkHistogramAdd(b *testing.B) {
	var h histogram
	for i := range b.N {
		h.Add(int64(i & 0xffff))
	}
}
