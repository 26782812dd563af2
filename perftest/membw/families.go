package membw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/stat"
	"github.com/assay-hpc/assay/perftest/judge"

	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// A family is one kind of measurement.
type family struct {
	name, title, rule string
	limits            judge.Limits
	latency           bool
	shape             shape
	flows             func(from, to int) []Flow // of a cell
	together          bool                      // all cells at the same time
	// reference is what a cell is held against, as the limits have it.
	reference func(j *job, c Cell) float64
	versus    bool // a plain copy does the same
}

// shape is which cells a family has.
type shape uint8

const (
	fromHost  shape = iota // a cell a GPU, from the host
	toHost                 // the other way
	within                 // a cell a GPU
	pairs                  // all ordered pairs
	unordered              // pairs with from < to
)

// cells of so many GPUs.
func (s shape) cells(n int) (out []Cell) {
	for a := range n {
		switch s {
		case fromHost:
			out = append(out, Cell{From: Host, To: a})
		case toHost:
			out = append(out, Cell{From: a, To: Host})
		case within:
			out = append(out, Cell{From: a, To: a})
		default:
			for b := range n {
				if a < b || a > b && s == pairs {
					out = append(out, Cell{From: a, To: b})
				}
			}
		}
	}
	return out
}

func gpu(i int) place { return place{i, ofGPU} }

func upload(_, g int) []Flow   { return []Flow{{From: place{g, pinned}, To: gpu(g), By: g}} }
func download(g, _ int) []Flow { return []Flow{{From: gpu(g), To: place{g, pinned}, By: g}} }

// write is a copy by the GPU whose data it is, read by the one that gets it.
func write(e engine) func(int, int) []Flow {
	return func(a, b int) []Flow { return []Flow{{From: gpu(a), To: gpu(b), By: a, Engine: e}} }
}

func read(e engine) func(int, int) []Flow {
	return func(a, b int) []Flow { return []Flow{{From: gpu(a), To: gpu(b), By: b, Engine: e}} }
}

func bothWays(e engine) func(int, int) []Flow {
	return func(a, b int) []Flow { return append(write(e)(a, b), write(e)(b, a)...) }
}

// Rules by which bytes are counted.
const (
	ruleOnce  = "bytes copied, counted once"
	ruleTotal = "bytes copied in both directions, counted once each, over the time of both"
)

// families are those of a Report, in this order.
var families = []family{
	{name: "host_to_device", title: "host to GPU, pinned", rule: ruleOnce, shape: fromHost, flows: upload, limits: hostLimits, reference: pcie, versus: true},
	{name: "device_to_host", title: "GPU to host, pinned", rule: ruleOnce, shape: toHost, flows: download, limits: hostLimits, reference: pcie, versus: true},
	{name: "host_to_device_all", title: "host to all GPUs at once, pinned", rule: ruleOnce, shape: fromHost, flows: upload, together: true, limits: contentionLimits, reference: alone("host_to_device")},
	{name: "device_to_host_all", title: "all GPUs to host at once, pinned", rule: ruleOnce, shape: toHost, flows: download, together: true, limits: contentionLimits, reference: alone("device_to_host")},
	{name: "local_ce", title: "within a GPU, by copy engine", rule: ruleOnce, shape: within, flows: write(engineCE), limits: localLimits, reference: halfMemory, versus: true},
	{name: "local_sm", title: "within a GPU, by kernel", rule: ruleOnce, shape: within, flows: write(engineSM), limits: localLimits, reference: halfMemory},
	{name: "peer_write_ce", title: "write by copy engine", rule: ruleOnce, shape: pairs, flows: write(engineCE), limits: peerLimits, reference: link(1), versus: true},
	{name: "peer_read_ce", title: "read by copy engine", rule: ruleOnce, shape: pairs, flows: read(engineCE), limits: peerLimits, reference: link(1)},
	{name: "peer_write_sm", title: "write by kernel", rule: ruleOnce, shape: pairs, flows: write(engineSM), limits: kernelLimits, reference: link(1)},
	{name: "peer_read_sm", title: "read by kernel", rule: ruleOnce, shape: pairs, flows: read(engineSM), limits: kernelLimits, reference: link(1)},
	{name: "peer_both_ce", title: "both ways at once by copy engine, total", rule: ruleTotal, shape: unordered, flows: bothWays(engineCE), limits: peerLimits, reference: link(2)},
	{name: "peer_both_sm", title: "both ways at once by kernel, total", rule: ruleTotal, shape: unordered, flows: bothWays(engineSM), limits: kernelLimits, reference: link(2)},
	{name: "host_latency", title: "GPU reads the host's memory", rule: ruleLatency, shape: toHost, latency: true, limits: latencyLimits},
	{name: "peer_latency", title: "GPU (from) reads another one's memory (to)", rule: ruleLatency, shape: pairs, latency: true, limits: latencyLimits},
}

const ruleLatency = "time of one load of 8 bytes whose address the load before it has given"

// FamilyNames are those that Options.Families may have.
func FamilyNames() (names []string) {
	for _, f := range families {
		names = append(names, f.name)
	}
	return names
}

// FamilyTitle says what a family is; "" if there is none of that name.
func FamilyTitle(name string) string {
	for _, f := range families {
		if f.name == name {
			return f.title
		}
	}
	return ""
}

func wanted(name string, only []string) bool { return len(only) == 0 || slices.Contains(only, name) }

// A job is a report that is being made.
type job struct {
	Machine
	Options
	report *Report
	links  map[sysfs.BusID]nvml.Links // before the next family
}

// family measures one. An error is an interrupt.
func (j *job) family(ctx context.Context, f family) error {
	n := len(j.report.GPUs)
	out := Family{Name: f.name, Title: f.title, Rule: f.rule, Unit: "GB/s", Limits: f.limits, Cells: f.shape.cells(n)}
	if f.latency {
		out.Unit = "ns"
	}
	if len(out.Cells) == 0 || f.together && n < 2 {
		return nil
	}
	began := time.Now()
	if f.together {
		j.Progress(f.title)
		j.measureAll(ctx, f, out.Cells)
	}
	for i := range out.Cells {
		c := &out.Cells[i]
		if !f.together {
			j.Progress(fmt.Sprintf("%s: %s", f.title, c.name()))
			j.measure(ctx, f, c)
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	out.Seconds = time.Since(began).Seconds()
	now, _ := j.Links()
	out.Changes = changes(j.report.GPUs, j.links, now)
	j.links = now
	for i := range out.Cells {
		c := &out.Cells[i]
		if f.reference != nil {
			c.Reference = f.reference(j, *c)
		}
		if out.matrix() && !f.latency && overPCIe(j.report.GPUs[c.From], j.report.GPUs[c.To]) {
			c.Limits = &pciePeerLimits
		}
	}
	out.judge()
	j.report.Families = append(j.report.Families, out)
	j.report.Findings = append(j.report.Findings, out.findings(n)...)
	return nil
}

func (j *job) plan() Plan {
	return Plan{Bytes: j.Bytes, Samples: j.Samples, Copies: j.Copies, Warmup: j.Warmup, Timing: whileHeld}
}

// measure fills in a cell.
func (j *job) measure(ctx context.Context, f family, c *Cell) {
	if c.From >= 0 && c.To >= 0 && c.From != c.To {
		if err := cmp.Or(j.Peer(c.From, c.To), j.Peer(c.To, c.From)); err != nil {
			c.Verdict, c.Reason = result.Skip, err.Error()
			return
		}
	}
	switch {
	case f.latency:
		at := place{c.To, ofGPU}
		if c.To == Host {
			at = place{c.From, pinned}
		}
		samples, err := j.Latency(ctx, Latency{By: c.From, At: at, Accesses: j.Accesses, Samples: j.Samples})
		for i := range samples {
			samples[i] *= 1e9
		}
		c.set(samples, err)
	case j.Versus && f.versus:
		j.measureVersus(ctx, f.flows(c.From, c.To), c)
	default:
		flows := f.flows(c.From, c.To)
		out, err := j.Measure(ctx, flows, j.plan())
		c.set(rates(float64(j.Bytes*j.Copies*len(flows)), out.Total), err)
	}
}

// measureAll fills in all cells, whose flows run at the same time.
func (j *job) measureAll(ctx context.Context, f family, cells []Cell) {
	var flows []Flow
	for _, c := range cells {
		flows = append(flows, f.flows(c.From, c.To)...)
	}
	out, err := j.Measure(ctx, flows, j.plan())
	for i := range cells {
		cells[i].set(rates(float64(j.Bytes*j.Copies), out.Flows[i]), err)
	}
}

// measureVersus takes turns with synchronous calls of cuMemcpy.
func (j *job) measureVersus(ctx context.Context, flows []Flow, c *Cell) {
	ours, theirs := j.plan(), j.plan()
	ours.Samples, theirs.Samples = 1, 1
	theirs.Timing, theirs.NoVerify = eachCall, true
	bytes := float64(j.Bytes * j.Copies)
	var a, b []float64
	var errs []error
	for range j.Samples {
		out, err := j.Measure(ctx, flows, ours)
		a, errs = append(a, rates(bytes, out.Total)...), append(errs, err)
		out, err = j.Measure(ctx, flows, theirs)
		b, errs = append(b, rates(bytes, out.Total)...), append(errs, err)
		if errors.Join(errs...) != nil {
			break
		}
	}
	c.set(a, errors.Join(errs...))
	if len(a) > 0 && len(b) > 0 {
		c.Versus = &rivalCopies{Way: "cuMemcpy", Value: stat.Median(b), Samples: b, Ratio: stat.Median(a) / stat.Median(b)}
	}
}

// set gives a cell its samples. With an error it has no value.
func (c *Cell) set(samples []float64, err error) {
	c.Samples = samples
	if err == nil && len(samples) == 0 {
		err = errors.New("there are no samples")
	}
	if err != nil {
		c.Verdict, c.Reason = result.Fail, err.Error()
		return
	}
	c.Value = stat.Median(samples)
}

// name is the cell for people.
func (c Cell) name() string {
	switch {
	case c.From == Host:
		return fmt.Sprintf("GPU %d", c.To)
	case c.To == Host || c.From == c.To:
		return fmt.Sprintf("GPU %d", c.From)
	}
	return fmt.Sprintf("GPU %d to %d", c.From, c.To)
}

// References.

// pcie is the GPU's slot's.
func pcie(j *job, c Cell) float64 { return j.report.GPUs[max(c.From, c.To)].Peaks.PCIe }

// halfMemory is what a copy can reach that reads and writes the same memory.
func halfMemory(j *job, c Cell) float64 { return j.report.GPUs[c.From].Peaks.Memory / 2 }

// link is the pair's, times so many directions.
func link(directions float64) func(*job, Cell) float64 {
	return func(j *job, c Cell) float64 {
		return directions * between(j.report.GPUs[c.From], j.report.GPUs[c.To])
	}
}

// alone is what the same cell has reached in another family.
func alone(name string) func(*job, Cell) float64 {
	return func(j *job, c Cell) float64 {
		for _, f := range j.report.Families {
			for _, o := range f.Cells {
				if f.Name == name && o.From == c.From && o.To == c.To {
					return o.Value
				}
			}
		}
		return 0
	}
}
