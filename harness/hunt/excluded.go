package hunt

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/stat"
)

// Excluded is what a hunt would have found, if it accuses nobody. All are shares, and 1 where nothing
// was measured; those of packets and of measurements are upper limits of 95 %, of the node about
// which least is known.
type Excluded struct {
	Slower  float64 `json:"slower"`  // a node slower than the rest by this much
	Path    float64 `json:"path"`    // a way from one node to another slower by this much
	Lost    float64 `json:"lost"`    // packets lost, as far as they were counted
	Outages float64 `json:"outages"` // measurements of a node that fail, are interrupted, or are slower by a fifth
}

// excluded calculates what follows from the measurements so far.
func (h *hunt) excluded() Excluded {
	x := Excluded{Slower: -math.Expm1(-h.find), Path: 1}
	if len(h.undecided()) > 0 {
		x.Slower = 1
	}
	type sums struct{ sent, lost, trials, out int }
	of := map[int]*sums{}
	pairs := map[[2]int]int{}
	var residuals []float64
	usual := h.usual()
	h.relative()
	for i := range h.events {
		e := &h.events[i]
		for _, f := range e.flows {
			for _, node := range e.group {
				if of[node] == nil {
					of[node] = &sums{}
				}
				s := of[node]
				s.sent, s.lost, s.trials = s.sent+f.packets.Sent, s.lost+f.packets.Lost, s.trials+1
				if f.shows.shows(Failed) || f.shows.shows(Stalled) || f.shows.shows(Dropped) {
					s.out++
				}
			}
			if f.from >= 0 && f.value > 0 {
				pairs[[2]int{f.from, f.to}]++
				residuals = append(residuals, math.Log(f.value/usual[h.classOf(e.group)]))
			}
		}
	}
	for _, node := range h.living() {
		s := of[node]
		if s == nil {
			s = &sums{}
		}
		x.Lost, x.Outages = max(x.Lost, upper(s.lost, s.sent)), max(x.Outages, upper(s.out, s.trials))
	}
	if n := len(h.living()); n >= 3 && len(pairs) >= n*(n-1) {
		fewest := slices.Min(slices.Collect(maps.Values(pairs)))
		if fewest >= minEvents {
			x.Path = 1 - dropped
		}
		if fewest >= minEvents && h.byPair(h.living()) {
			// So many deviations are from what is never accused to what is as good as always found.
			x.Path = min(x.Path, -math.Expm1(-h.least-6*stat.MAD(residuals)/math.Sqrt(float64(fewest))))
		}
	}
	return x
}

// upper returns an upper limit of the share of which k of n were seen, with a confidence of 95 %.
func upper(k, n int) float64 {
	if n == 0 {
		return 1
	}
	return min(1, (float64(k)+3+2*math.Sqrt(float64(k)))/float64(n))
}

// String says what was excluded, for "no machine …".
func (x Excluded) String() string {
	var out []string
	add := func(share float64, format string) {
		if share < 1 {
			out = append(out, fmt.Sprintf(format, 100*share))
		}
	}
	add(x.Slower, "is %.3g %% slower than the rest")
	add(x.Path, "has a path %.3g %% slower")
	add(x.Lost, "loses %.2g %% of packets")
	add(x.Outages, "is interrupted in %.2g %% of measurements")
	return strings.Join(out, ", ")
}
