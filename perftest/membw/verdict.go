package membw

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/stat"
	"github.com/assay-hpc/assay/perftest/judge"
)

// The limits, based on what healthy nodes are known to reach (figures and sources:
// internal/platform; list: docs/bandwidth.md).
var (
	// PCIe 5: 55 of 63 GB/s, 0.87; Azure's minimum is 48, 0.76. PCIe 4: 24 to 26 of 31.
	hostLimits = judge.Limits{Pass: 0.76, Fail: 0.66, MedianWarn: 0.93, MedianFail: 0.75}
	// GPUs may share an uplink by design, so this alone is not a failure.
	contentionLimits = judge.Limits{Pass: 0.7, MedianWarn: 0.8, MedianFail: 0.5}
	// H200 2081 of 2400, 0.87; A100 790 of 1000, 0.79; H100 1260 of 1675, 0.75.
	localLimits = judge.Limits{Pass: 0.72, Fail: 0.62, MedianWarn: 0.95, MedianFail: 0.85}
	// H200 396 of 450, 0.88; A100 276 of 300, 0.92; GB200 746 of 900, 0.83; Azure's minimums are
	// 335 of 450, 0.74, and 235 of 300, 0.78.
	peerLimits = judge.Limits{Pass: 0.80, Fail: 0.72, MedianWarn: 0.95, MedianFail: 0.85}
	// Peers without NVLink: switches and CPUs between them forward less than a slot can carry, and
	// the amount varies.
	pciePeerLimits = judge.Limits{Pass: 0.6, Fail: 0.4, MedianWarn: 0.8, MedianFail: 0.5}
	// H200 366 to 376 of 450, 0.81 to 0.84.
	kernelLimits = judge.Limits{Pass: 0.75, Fail: 0.67, MedianWarn: 0.93, MedianFail: 0.85}
	// There is no published reference value; the memory of another socket is farther away.
	latencyLimits = judge.Limits{MedianWarn: 1.5, MedianFail: 3, Lower: true}
)

// Remedy is the advice for slow results.
const Remedy = "compare the links' state and the counters of errors (harness health), and repeat without other work on the node"

// judge makes the result of a family from its figures. It compares each figure with its reference
// and, if there are at least three, with the median of all.
func (j *job) judge(f family, figures []figure) result.Result {
	var values []float64
	for _, x := range figures {
		if len(x.samples) > 0 && x.err == nil {
			values = append(values, stat.Median(x.samples))
		}
	}
	usual := 0.0
	if len(values) >= 3 {
		usual = stat.Median(values)
	}
	objects := make([]result.Object, len(figures))
	for i, x := range figures {
		objects[i] = j.object(f, x, usual)
	}
	res := result.Sum(objects)
	res.Measured = result.Speaking("bandwidth/"+f.name, objects)
	switch said := blame(f, figures, objects, len(j.report.GPUs)); {
	case res.Verdict == result.Pass:
		res.Reason = result.Values(objects)
	case len(said) > 0:
		res.Reason = strings.Join(said, "; ")
	}
	if res.Verdict.Bad() {
		res.Remedy = Remedy
	}
	for i, x := range figures {
		if len(x.rival) > 0 {
			o := result.Object{Name: objects[i].Name, Peer: objects[i].Peer, ID: objects[i].ID, Quantity: rival, Verdict: result.Pass}
			o.Measured = measured(x.rival, f.unit())
			res.Objects = append(res.Objects, o)
		}
	}
	return res
}

// measured is the median of samples.
func measured(samples []float64, unit string) *result.Measurement {
	m := &result.Measurement{Value: stat.Median(samples), Unit: unit}
	if len(samples) > 1 {
		m.Spread = &result.Spread{Low: slices.Min(samples), High: slices.Max(samples), Kind: result.Range, Samples: len(samples)}
	}
	return m
}

// object makes the object of a figure, with its verdict.
func (j *job) object(f family, x figure, usual float64) result.Object {
	g := &j.report.GPUs[x.gpu()]
	if x.between() {
		g = &j.report.GPUs[x.from]
	}
	o := result.Object{Name: gpuName(g.Index), ID: g.UUID, Bus: g.Bus.String()}
	limits := f.limits
	if x.between() {
		o.Peer = gpuName(x.to)
		if f.flows != nil && overPCIe(j.report.GPUs[x.from], j.report.GPUs[x.to]) {
			limits = pciePeerLimits
		}
	}
	switch {
	case x.unable != nil:
		o.Verdict, o.Reason = result.Skip, x.unable.Error()
		return o
	case x.err != nil:
		o.Verdict, o.Reason = result.Fail, x.err.Error()
		return o
	case len(x.samples) == 0:
		o.Verdict, o.Reason = result.Fail, "there are no samples"
		return o
	}
	m := measured(x.samples, f.unit())
	o.Measured = m
	if f.reference.of != nil {
		if ref := f.reference.of(j, x.ends); ref > 0 {
			m.Expected, m.Source, m.Ratio = ref, f.reference.source, m.Value/ref
			m.Limit = &result.Limit{Value: limits.Pass * ref, Kind: result.AtLeast, Source: fmt.Sprintf("harness bandwidth: %.2f of the reference", limits.Pass)}
		}
	}
	o.Verdict, o.Reason = limits.Judge(m.Value, m.Expected, usual, judge.Words{
		Value:     func(v float64) string { return fmt.Sprintf("%.1f %s", v, f.unit()) },
		Reference: func(v float64) string { return fmt.Sprintf("%.1f", v) },
		Usual:     func(v float64) string { return fmt.Sprintf("the median of all, %.1f", v) },
	})
	return o
}

// blame names the GPUs and pairs that are at fault for the bad figures of a family. In a matrix of
// n GPUs, a GPU that is slow with all others is at fault itself; a single slow pair has a bad path.
func blame(f family, figures []figure, objects []result.Object, n int) (out []string) {
	var bad, all []int
	tried := 0
	for i := range objects {
		if objects[i].Verdict.Bad() {
			bad = append(bad, i)
		}
		if objects[i].Verdict != result.Skip {
			tried++
		}
	}
	for g := range n {
		all = append(all, g)
	}
	m := judge.Matrix{Members: n, Cells: len(objects), Limits: f.limits, Cell: func(i int) (int, int, float64, result.Verdict) {
		value := 0.0
		if o := &objects[i]; o.Measured != nil {
			value = o.Measured.Value
		}
		return figures[i].from, figures[i].to, value, objects[i].Verdict
	}}
	find := func(cells []int, what string) {
		worst, _ := m.Worst(cells)
		out = append(out, what+": "+objects[worst].Reason)
	}
	note := ""
	switch {
	case len(bad) == 0 || !f.shape.matrix():
		return nil
	case n == 2: // no third GPU to compare with
		note = " (the path, or either GPU)"
	case len(bad) == tried:
		find(bad, fmt.Sprintf("all %d GPUs, between one another", n))
		return out
	default:
		note = " (this path alone)"
		var whole, sends, receives []judge.Suspect
		for g := range n {
			whole = append(whole, judge.Suspect{Members: all[g : g+1], Sends: true, Receives: true})
			if f.shape == ordered { // otherwise a figure covers both directions
				sends = append(sends, judge.Suspect{Members: all[g : g+1], Sends: true})
				receives = append(receives, judge.Suspect{Members: all[g : g+1], Receives: true})
			}
		}
		culprits, left := m.Blame(whole, sends, receives)
		for _, c := range culprits {
			find(c.Cells, fmt.Sprintf("GPU %d, %s every other one", c.Suspect%n, [...]string{"with", "to", "from"}[c.Suspect/n]))
		}
		bad = left
	}
	for _, i := range bad {
		find([]int{i}, figures[i].name()+note)
	}
	return out
}
