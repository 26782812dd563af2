package probe

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// samples are the lists of -U and -H: every latency in order of arrival, and sorted without the two
// largest.
func (c *Config) samples(r *LatencyResult) string {
	var b strings.Builder
	list := func(v []float64) {
		fmt.Fprintf(&b, "#, %s\n", c.latencyUnit())
		for i, ns := range v {
			fmt.Fprintf(&b, "%d, %s\n", i+1, general(c.inUnit(r, ns)))
		}
	}
	if c.Unsorted {
		list(r.Samples)
	}
	if c.Sorted {
		sorted := slices.Sorted(slices.Values(r.Samples))
		list(sorted[:max(0, len(sorted)-tail)])
	}
	return b.String()
}

// general is C's %g.
func general(v float64) string {
	s := fmt.Sprintf("%.6g", v)
	if mantissa, exponent, ok := strings.Cut(s, "e"); ok && len(exponent) == 2 { // e+6 is e+06 in C
		s = mantissa + "e" + exponent[:1] + "0" + exponent[1:]
	}
	return s
}

// percentiles are the percentiles of --histogram and of the JSON output.
var percentiles = []struct {
	name string
	q    float64
}{{"50", 0.5}, {"90", 0.9}, {"99", 0.99}, {"99.9", 0.999}, {"99.99", 0.9999}}

// histogramText is the text of --histogram: percentiles of all samples, and the count of each
// bucket.
func histogramText(r *LatencyResult) string {
	if r.Histogram == nil || r.Histogram.Count() == 0 {
		return ""
	}
	var b strings.Builder
	h, scale := r.Histogram, max(1, r.RoundTrips)
	fmt.Fprintf(&b, "# latencies of %d bytes, %d samples, all of them; usec\n#", r.Bytes, h.Count())
	for _, p := range percentiles {
		fmt.Fprintf(&b, " %s%% %.2f ", p.name, r.Quantile(p.q)/1e3)
	}
	fmt.Fprintf(&b, " max %.2f\n", float64(h.most)/float64(scale)/1e3)
	all := h.Buckets(scale)
	var most, seen uint64
	for _, k := range all {
		most = max(most, k.Count)
	}
	for _, k := range all {
		seen += k.Count
		bar := strings.Repeat("*", int(math.Ceil(40*float64(k.Count)/float64(most))))
		fmt.Fprintf(&b, "# %10.3f .. %10.3f %10d %7.3f%% %s\n", k.From/1e3, k.To/1e3, k.Count, 100*float64(seen)/float64(h.Count()), bar)
	}
	return b.String()
}

// counters records the increases of a port's counters during the line.
func (t *Table) counters(r Row) {
	if t.c.Format != "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.Counters)) {
		c := r.Counters[name]
		fmt.Fprintf(&t.later, "# counter %s: %d (from %d to %d)\n", name, c.After-c.Before, c.Before, c.After)
	}
}
