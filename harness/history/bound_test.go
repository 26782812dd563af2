package history

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// bound returns the largest probability with which any detector can find a step of a single series,
// if it accuses at most one in a thousand series without a change, whatever their correlation (up to
// 0.9) and noise are; and that of a detector that knows the noise and its correlation. Both know the
// time and the size of the step.
//
// A test that keeps its level for all kinds of noise keeps it for a mixture of them, and the most
// powerful test against a mixture is the likelihood ratio (Neyman and Pearson). The mixture is the
// least favourable one that was found (Lehmann and Romano, Testing Statistical Hypotheses, 3.8).
func (c *scenario) bound(runs int, seed uint64) (unknown, known float64) {
	const level = 0.001
	var rho, sigma []float64
	for r := 0.0; r < 0.95; r += 0.1 {
		for s := 0.7; s < 6; s *= 1.15 {
			rho, sigma = append(rho, r), append(sigma, s)
		}
	}
	rng := rand.New(rand.NewPCG(seed, 46))
	at := make([]float64, c.n)
	for i := range at {
		at[i] = float64(i)
	}
	// For each series with a step: the likelihoods without it, as parts of that with it.
	ratios := make([][]float64, runs)
	free := float64(c.n - 1)
	for k := range ratios {
		y, e := make([]float64, c.n), make([]float64, c.n)
		for i := range y {
			e[i] = rng.NormFloat64()
			if y[i] = e[i]; i >= c.from {
				y[i] += c.step / c.own
			}
		}
		w := (&sample{at: at, y: e}).whiten(0)
		with := w.rss + math.Log(dot(w.one, w.one))
		last := -1.0
		for j, r := range rho {
			if r != last {
				w, last = (&sample{at: at, y: y}).whiten(r), r
			}
			s2 := sigma[j] * sigma[j]
			without := free*math.Log(s2) + w.logdet + math.Log(dot(w.one, w.one)) + w.rss/s2
			ratios[k] = append(ratios[k], math.Exp((with-without)/2))
		}
	}
	power := func(weight []float64) (float64, []int) {
		mixed := make([]float64, runs)
		order := make([]int, runs)
		for k := range ratios {
			mixed[k], order[k] = dot(weight, ratios[k]), k
		}
		slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, mixed[a]-mixed[b])) })
		sum := 0.0
		for n, k := range order { // the probability of a false alarm is the mean ratio where one is given
			if sum += mixed[k] / float64(runs); sum > level {
				return float64(n) / float64(runs), order[:n]
			}
		}
		return 1, order
	}
	weight := make([]float64, len(rho))
	for j := range weight {
		weight[j] = 1 / float64(len(weight))
	}
	unknown = 1
	for range 300 {
		p, found := power(weight)
		unknown = min(unknown, p)
		total := 0.0
		for j := range weight {
			falsely := 0.0
			for _, k := range found {
				falsely += ratios[k][j] / float64(runs)
			}
			weight[j] *= math.Sqrt(falsely/level) + 1e-9
			total += weight[j]
		}
		for j := range weight {
			weight[j] /= total
		}
	}
	clear(weight)
	for j := range weight {
		if rho[j] == 0 && math.Abs(sigma[j]-1) < 0.08 {
			weight[j] = 1
		}
	}
	known, _ = power(weight)
	return unknown, known
}

// TestBound prints what no detector can exceed, for the scenarios of a single series with a step.
func TestBound(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("ASSAY_HISTORY_RUNS"))
	if runs == 0 {
		t.Skip("ASSAY_HISTORY_RUNS is not set")
	}
	for _, c := range detections {
		if c.things > 1 || c.step == 0 || c.odd > 0 {
			continue
		}
		unknown, known := c.bound(runs, 3)
		t.Logf("%-58s at most %3.0f of 100; %3.0f if the noise is known", c.name, 100*unknown, 100*known)
	}
}
