package membw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/perftest/judge"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
)

// A family is one kind of measurement.
type family struct {
	name, title string
	heading     string // of its column; "": it is not in the table
	limits      judge.Limits
	shape       shape
	flows       func(from, to int) []Flow // for one pair; nil: the family measures latency
	together    bool                      // measure all pairs at the same time
	reference   reference                 // expected value of a pair; zero: not known
	versus      bool                      // a plain cuMemcpy can make the same copy
}

// A reference is the value that a pair should reach, to which the limits apply, and its source.
type reference struct {
	of     func(j *job, p ends) float64
	source string
}

// shape defines which pairs a family has.
type shape uint8

const (
	fromHost  shape = iota // each GPU, from the host
	toHost                 // each GPU, to the host
	within                 // each GPU
	ordered                // all pairs of GPUs
	unordered              // those with from < to
)

// matrix reports whether the pairs are of two GPUs.
func (s shape) matrix() bool { return s >= ordered }

// pairs returns the pairs for n GPUs.
func (s shape) pairs(n int) (out []ends) {
	for a := range n {
		switch s {
		case fromHost:
			out = append(out, ends{Host, a})
		case toHost:
			out = append(out, ends{a, Host})
		case within:
			out = append(out, ends{a, a})
		default:
			for b := range n {
				if a < b || a > b && s == ordered {
					out = append(out, ends{a, b})
				}
			}
		}
	}
	return out
}

func (f *family) unit() string {
	if f.flows == nil {
		return "ns"
	}
	return "GB/s"
}

func gpu(i int) endpoint { return endpoint{i, ofGPU} }

func upload(_, g int) []Flow   { return []Flow{{From: endpoint{g, pinned}, To: gpu(g), By: g}} }
func download(g, _ int) []Flow { return []Flow{{From: gpu(g), To: endpoint{g, pinned}, By: g}} }

// write is a copy made by the source GPU; read is a copy made by the destination GPU.
func write(e engine) func(int, int) []Flow {
	return func(a, b int) []Flow { return []Flow{{From: gpu(a), To: gpu(b), By: a, Engine: e}} }
}

func read(e engine) func(int, int) []Flow {
	return func(a, b int) []Flow { return []Flow{{From: gpu(a), To: gpu(b), By: b, Engine: e}} }
}

func bothWays(e engine) func(int, int) []Flow {
	return func(a, b int) []Flow { return append(write(e)(a, b), write(e)(b, a)...) }
}

// families are the families of a Report, in order. The bytes of a copy count once. If both
// directions run at once, the bytes of each count once, over the time of both.
var families = []family{
	{name: "host_to_device", title: "host to GPU, pinned", heading: "H2D", shape: fromHost, flows: upload, limits: hostLimits, reference: pcie, versus: true},
	{name: "device_to_host", title: "GPU to host, pinned", heading: "D2H", shape: toHost, flows: download, limits: hostLimits, reference: pcie, versus: true},
	{name: "host_to_device_all", title: "host to all GPUs at once, pinned", heading: "H2D all", shape: fromHost, flows: upload, together: true, limits: contentionLimits, reference: alone("host_to_device")},
	{name: "device_to_host_all", title: "all GPUs to host at once, pinned", heading: "D2H all", shape: toHost, flows: download, together: true, limits: contentionLimits, reference: alone("device_to_host")},
	{name: "local_ce", title: "within a GPU, by copy engine", heading: "local CE", shape: within, flows: write(engineCE), limits: localLimits, reference: halfMemory, versus: true},
	{name: "local_sm", title: "within a GPU, by kernel", heading: "local SM", shape: within, flows: write(engineSM), limits: localLimits, reference: halfMemory},
	{name: "peer_write_ce", title: "write by copy engine", shape: ordered, flows: write(engineCE), limits: peerLimits, reference: link(1), versus: true},
	{name: "peer_read_ce", title: "read by copy engine", shape: ordered, flows: read(engineCE), limits: peerLimits, reference: link(1)},
	{name: "peer_write_sm", title: "write by kernel", shape: ordered, flows: write(engineSM), limits: kernelLimits, reference: link(1)},
	{name: "peer_read_sm", title: "read by kernel", shape: ordered, flows: read(engineSM), limits: kernelLimits, reference: link(1)},
	{name: "peer_both_ce", title: "both ways at once by copy engine, total", shape: unordered, flows: bothWays(engineCE), limits: peerLimits, reference: link(2)},
	{name: "peer_both_sm", title: "both ways at once by kernel, total", shape: unordered, flows: bothWays(engineSM), limits: kernelLimits, reference: link(2)},
	// The latency of one 8-byte load with an address that the previous load returned.
	{name: "host_latency", title: "GPU reads the host's memory", heading: "host, ns", shape: toHost, limits: latencyLimits},
	{name: "peer_latency", title: "GPU (from) reads another one's memory (to)", shape: ordered, limits: latencyLimits},
}

// FamilyNames returns the valid names for Options.Families.
func FamilyNames() (names []string) {
	for _, f := range families {
		names = append(names, f.name)
	}
	return names
}

// FamilyTitle is the title of a family's result.
func FamilyTitle(name string) string { return "copies are fast enough: " + familyOf(name).title }

// familyOf returns the family with the given name, or an empty one.
func familyOf(name string) *family {
	for i := range families {
		if families[i].name == name {
			return &families[i]
		}
	}
	return new(family)
}

func wanted(name string, only []string) bool { return len(only) == 0 || slices.Contains(only, name) }

// A job is a report in progress.
type job struct {
	Machine
	Options
	report      *Report
	links       map[sysfs.BusID]nvml.Links // as read before the next family
	unconnected error                      // why peer access between GPUs could not be enabled
	changes     []linkChange
	seconds     float64 // of all families
}

// A figure is the measurement of one pair.
type figure struct {
	ends
	samples, rival []float64
	unable         error // why it cannot be measured
	err            error
}

// family measures one family. It returns an error only on an interrupt.
func (j *job) family(ctx context.Context, f family) error {
	n := len(j.report.GPUs)
	pairs := f.shape.pairs(n)
	res := result.Skipped("it takes more GPUs than there are: %d", n)
	if len(pairs) > 0 && (n > 1 || !f.together) {
		began := time.Now()
		figures, err := j.figures(ctx, f, pairs)
		if err != nil {
			return err
		}
		seconds := time.Since(began).Seconds()
		now, _ := j.Links()
		j.changes = append(j.changes, changes(f.name, j.report.GPUs, j.links, now)...)
		j.links = now
		j.seconds += seconds
		res = j.judge(f, figures)
		res.Seconds = seconds
	}
	res.ID, res.Title = f.name, FamilyTitle(f.name)
	j.report.Results = append(j.report.Results, res)
	return nil
}

// figures measures a family's pairs.
func (j *job) figures(ctx context.Context, f family, pairs []ends) ([]figure, error) {
	out := make([]figure, len(pairs))
	for i, p := range pairs {
		out[i].ends = p
	}
	if f.together {
		j.Progress(f.title)
		j.measureAll(ctx, f, out)
		return out, context.Cause(ctx)
	}
	for i := range out {
		j.Progress(fmt.Sprintf("%s: %s", f.title, out[i].name()))
		j.measure(ctx, f, &out[i])
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (j *job) plan() Plan {
	return Plan{Bytes: j.Bytes, Samples: j.Samples, Copies: j.Copies, Warmup: j.Warmup, Timing: whileHeld}
}

// measure fills in a figure.
func (j *job) measure(ctx context.Context, f family, x *figure) {
	if x.between() {
		if x.unable = cmp.Or(j.Peer(x.from, x.to), j.Peer(x.to, x.from)); x.unable != nil {
			return
		}
	}
	switch {
	case f.flows == nil:
		at := endpoint{x.to, ofGPU}
		if x.to == Host {
			at = endpoint{x.from, pinned}
		}
		x.samples, x.err = j.Latency(ctx, Latency{By: x.from, At: at, Accesses: j.Accesses, Samples: j.Samples})
		for i := range x.samples {
			x.samples[i] *= 1e9
		}
	case j.Versus && f.versus:
		j.measureVersus(ctx, f.flows(x.from, x.to), x)
	default:
		flows := f.flows(x.from, x.to)
		var out Outcome
		out, x.err = j.Measure(ctx, flows, j.plan())
		x.samples = rates(float64(j.Bytes*j.Copies*len(flows)), out.Total)
	}
}

// measureAll fills in all figures; their flows run at the same time.
func (j *job) measureAll(ctx context.Context, f family, figures []figure) {
	var flows []Flow
	for _, x := range figures {
		flows = append(flows, f.flows(x.from, x.to)...)
	}
	out, err := j.Measure(ctx, flows, j.plan())
	for i := range figures {
		figures[i].samples, figures[i].err = rates(float64(j.Bytes*j.Copies), out.Flows[i]), err
	}
}

// measureVersus alternates with synchronous calls of cuMemcpy.
func (j *job) measureVersus(ctx context.Context, flows []Flow, x *figure) {
	ours, theirs := j.plan(), j.plan()
	ours.Samples, theirs.Samples = 1, 1
	theirs.Timing, theirs.NoVerify = eachCall, true
	bytes := float64(j.Bytes * j.Copies)
	for range j.Samples {
		a, errA := j.Measure(ctx, flows, ours)
		b, errB := j.Measure(ctx, flows, theirs)
		x.samples, x.rival = append(x.samples, rates(bytes, a.Total)...), append(x.rival, rates(bytes, b.Total)...)
		if x.err = errors.Join(errA, errB); x.err != nil {
			break
		}
	}
}

// References.

const dataBase = "hardware database"

// pcie is the peak of the GPU's PCIe slot.
var pcie = reference{func(j *job, p ends) float64 { return j.report.GPUs[p.gpu()].Peaks.PCIe }, dataBase}

// halfMemory is the limit for a copy that reads and writes the same memory.
var halfMemory = reference{func(j *job, p ends) float64 { return j.report.GPUs[p.from].Peaks.Memory / 2 }, dataBase}

// link is the peak of the pair's link, times the number of directions.
func link(directions float64) reference {
	return reference{func(j *job, p ends) float64 {
		return directions * between(j.report.GPUs[p.from], j.report.GPUs[p.to])
	}, dataBase}
}

// alone is what the GPU reached in another family.
func alone(name string) reference {
	return reference{func(j *job, p ends) float64 {
		for _, o := range j.report.Of(name).Objects {
			if o.Name == p.name() && o.Measured != nil {
				return o.Measured.Value
			}
		}
		return 0
	}, name}
}
