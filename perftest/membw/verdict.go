package membw

import (
	"fmt"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/stat"
	"github.com/assay-hpc/assay/perftest/judge"
)

// The limits, by what healthy nodes are known to reach (harness/platform has the
// figures and sources; docs/bandwidth.md has the list).
var (
	// PCIe 5: 55 of 63 GB/s, 0.87; Azure's floor is 48, 0.76. PCIe 4: 24 to 26 of 31.
	hostLimits = judge.Limits{Pass: 0.76, Fail: 0.66, MedianWarn: 0.93, MedianFail: 0.75}
	// GPUs may share an uplink by design: no failure by itself.
	contentionLimits = judge.Limits{Pass: 0.7, MedianWarn: 0.8, MedianFail: 0.5}
	// H200 2081 of 2400, 0.87; A100 790 of 1000, 0.79; H100 1260 of 1675, 0.75.
	localLimits = judge.Limits{Pass: 0.72, Fail: 0.62, MedianWarn: 0.95, MedianFail: 0.85}
	// H200 396 of 450, 0.88; A100 276 of 300, 0.92; GB200 746 of 900, 0.83; Azure's
	// floors are 335 of 450, 0.74, and 235 of 300, 0.78.
	peerLimits = judge.Limits{Pass: 0.80, Fail: 0.72, MedianWarn: 0.95, MedianFail: 0.85}
	// Peers without NVLink: switches and processors between them pass less on
	// than a slot takes, and how much differs.
	pciePeerLimits = judge.Limits{Pass: 0.6, Fail: 0.4, MedianWarn: 0.8, MedianFail: 0.5}
	// H200 366 to 376 of 450, 0.81 to 0.84.
	kernelLimits = judge.Limits{Pass: 0.75, Fail: 0.67, MedianWarn: 0.93, MedianFail: 0.85}
	// Nobody publishes what it should be; another socket's memory is farther away.
	latencyLimits = judge.Limits{MedianWarn: 1.5, MedianFail: 3, Lower: true}
)

// judge gives the cells their verdicts.
func (f *Family) judge() {
	var values []float64
	for _, c := range f.Cells {
		if c.Value > 0 {
			values = append(values, c.Value)
		}
	}
	for i := range f.Cells {
		c, limits := &f.Cells[i], f.Limits
		if c.Limits != nil {
			limits = *c.Limits
		}
		if c.Samples == nil {
			c.Samples = []float64{} // a list in JSON, too
		}
		if c.Verdict == "" {
			c.judge(limits, f.Unit, values)
		}
	}
}

// judge holds a cell against its reference and the median of the family's values, of
// which there must be three.
func (c *Cell) judge(l judge.Limits, unit string, values []float64) {
	if c.Reference > 0 {
		c.Efficiency = c.Value / c.Reference
	}
	usual := 0.0
	if len(values) >= 3 {
		usual = stat.Median(values)
	}
	c.Verdict, c.Reason = l.Judge(c.Value, c.Reference, usual, judge.Words{
		Value:     func(v float64) string { return fmt.Sprintf("%.1f %s", v, unit) },
		Reference: func(v float64) string { return fmt.Sprintf("%.1f", v) },
		Usual:     func(v float64) string { return fmt.Sprintf("the median of all, %.1f", v) },
	})
}

// findings names the GPUs and pairs that are to blame for a family's bad cells.
func (f *Family) findings(n int) (out []Finding) {
	if f.matrix() {
		return f.blame(n)
	}
	for _, c := range f.Cells {
		if c.Verdict.Bad() {
			out = append(out, Finding{f.Name, []int{max(c.From, c.To)}, c.Verdict, fmt.Sprintf("%s: %s: %s", c.name(), f.Title, c.Reason)})
		}
	}
	return out
}

// blame goes through a matrix of n GPUs: one that is slow with everyone is at
// fault itself, a pair that alone is slow has a bad path.
func (f *Family) blame(n int) (out []Finding) {
	m := judge.Matrix{Members: n, Cells: len(f.Cells), Limits: f.Limits, Cell: func(i int) (int, int, float64, result.Verdict) {
		c := &f.Cells[i]
		return c.From, c.To, c.Value, c.Verdict
	}}
	find := func(cells []int, what string, gpus ...int) {
		worst, v := m.Worst(cells)
		out = append(out, Finding{f.Name, gpus, v, fmt.Sprintf("%s: %s: %s", what, f.Title, f.Cells[worst].Reason)})
	}
	var bad, all []int
	measured, pairs := 0, true // of pairs, a cell is of both directions
	for i, c := range f.Cells {
		if c.Verdict.Bad() {
			bad = append(bad, i)
		}
		if c.Verdict != result.Skip {
			measured++
		}
		pairs = pairs && c.From <= c.To
	}
	for g := range n {
		all = append(all, g)
	}
	alone := " (this path alone)"
	switch {
	case len(bad) == 0:
		return nil
	case n == 2: // nobody else to compare with
		alone = " (the path, or either GPU)"
	case len(bad) == measured:
		find(bad, fmt.Sprintf("all %d GPUs, between one another", n), all...)
		return out
	default:
		var whole, sends, receives []judge.Suspect
		for g := range n {
			whole = append(whole, judge.Suspect{Members: all[g : g+1], Sends: true, Receives: true})
			if !pairs {
				sends = append(sends, judge.Suspect{Members: all[g : g+1], Sends: true})
				receives = append(receives, judge.Suspect{Members: all[g : g+1], Receives: true})
			}
		}
		culprits, left := m.Blame(whole, sends, receives)
		for _, c := range culprits {
			g := c.Suspect % n
			find(c.Cells, fmt.Sprintf("GPU %d, %s every other one", g, [...]string{"with", "to", "from"}[c.Suspect/n]), g)
		}
		bad = left
	}
	for _, i := range bad {
		c := &f.Cells[i]
		find([]int{i}, c.name()+alone, c.From, c.To)
	}
	return out
}
