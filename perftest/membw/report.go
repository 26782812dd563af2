package membw

import (
	"context"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/perftest/judge"

	"github.com/assay-hpc/assay/harness/nvml"
	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// Schema is the version of Report's JSON.
const Schema = 1

// Host is the Cell.From or Cell.To that is no GPU.
const Host = -1

// A Report is what was measured of a node, and what it is worth.
type Report struct {
	Schema   int            `json:"schema"`
	Version  string         `json:"version"` // of the program
	Host     string         `json:"host"`
	Time     time.Time      `json:"time"`
	Driver   string         `json:"driver,omitempty"`
	Bytes    int            `json:"bytes"` // of a copy
	Samples  int            `json:"samples"`
	Copies   int            `json:"copies"` // that a sample times
	Warmup   int            `json:"warmup"` // copies before those
	GPUs     []Subject      `json:"gpus"`
	Families []Family       `json:"families"`
	Findings []Finding      `json:"findings"`
	Verdict  result.Verdict `json:"verdict"`
}

// A Subject is a GPU with what it should reach.
type Subject struct {
	GPU
	Model string      `json:"model,omitempty"` // in the hardware data base; "": not there
	Peaks peakRates   `json:"peaks"`
	Links *nvml.Links `json:"links,omitempty"` // before the first family; nil: not known
}

// peakRates are in GB/s, one direction; 0 is not known.
type peakRates struct {
	PCIe    float64 `json:"pcie"`
	NVLink  float64 `json:"nvlink"` // all links together
	NVLinks int     `json:"nvlinks"`
	Memory  float64 `json:"memory"` // a copy within the GPU reaches half of it
}

// A Family is one kind of measurement, of all GPUs or pairs.
type Family struct {
	Name    string       `json:"name"`
	Title   string       `json:"title"`
	Rule    string       `json:"rule"` // which bytes count
	Unit    string       `json:"unit"` // "GB/s" or "ns"
	Limits  judge.Limits `json:"limits"`
	Cells   []Cell       `json:"cells"`
	Changes []linkChange `json:"changes,omitempty"` // of the GPUs' links meanwhile
	Seconds float64      `json:"seconds"`           // that it took
}

// A Cell is the measurement of a GPU or a pair. Either there is a value, or an
// error, or it was not possible.
type Cell struct {
	From       int            `json:"from"` // a GPU, or Host
	To         int            `json:"to"`
	Value      float64        `json:"value"` // the median of the samples
	Samples    []float64      `json:"samples"`
	Reference  float64        `json:"reference,omitempty"`  // what it is held against; 0: nothing is known
	Efficiency float64        `json:"efficiency,omitempty"` // Value / Reference
	Verdict    result.Verdict `json:"verdict"`
	Reason     string         `json:"reason,omitempty"` // of a verdict other than pass
	Limits     *judge.Limits  `json:"limits,omitempty"` // where the family's do not hold
	Versus     *rivalCopies   `json:"versus,omitempty"`
}

// A rivalCopies is the same copies by another way, in turns with ours.
type rivalCopies struct {
	Way     string    `json:"way"`
	Value   float64   `json:"value"`
	Samples []float64 `json:"samples"`
	Ratio   float64   `json:"ratio"` // ours to the rival's
}

// A linkChange is what became of a GPU's links during a family.
type linkChange struct {
	GPU        int               `json:"gpu"`
	Before     nvml.Links        `json:"before"`
	After      nvml.Links        `json:"after"`
	Difference map[string]uint64 `json:"difference"` // of the counters that moved
}

// A Finding names what is wrong.
type Finding struct {
	Family  string         `json:"family"`
	GPUs    []int          `json:"gpus"`
	Verdict result.Verdict `json:"verdict"`
	Text    string         `json:"text"`
}

// Options are how to make a Report.
type Options struct {
	Bytes    int
	Samples  int
	Copies   int
	Warmup   int
	Accesses int      // of a sample of latency
	Families []string // only those; none: all
	Versus   bool     // against cuMemcpy
	DB       *platform.DB
	Links    func() (map[sysfs.BusID]nvml.Links, error) // nil: they are not known
	Progress func(text string)                          // nil: nobody looks
}

// Defaults are good for a node of eight GPUs: the copies are larger than caches,
// and all takes less than a minute.
func Defaults() Options {
	return Options{Bytes: 512 << 20, Samples: 5, Copies: 8, Warmup: 2, Accesses: 1 << 16}
}

// Run measures all families. An interrupt is the only error: what fails is in the
// report.
func (o Options) Run(ctx context.Context, m Machine) (*Report, error) {
	r := &Report{Schema: Schema, Bytes: o.Bytes, Samples: o.Samples, Copies: o.Copies, Warmup: o.Warmup, Findings: []Finding{}}
	if o.Links == nil {
		o.Links = func() (map[sysfs.BusID]nvml.Links, error) { return nil, nil }
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	links, _ := o.Links() // without an answer they are not known
	for _, g := range m.GPUs() {
		r.GPUs = append(r.GPUs, subject(g, links, o.DB))
	}
	if err := connect(m, true); err != nil {
		r.Findings = append(r.Findings, Finding{Verdict: result.Fail, Text: fmt.Sprintf("peer access: %v", err)})
	}
	j := &job{Machine: m, Options: o, report: r, links: links}
	for _, f := range families {
		if !wanted(f.name, o.Families) {
			continue
		}
		if err := j.family(ctx, f); err != nil {
			return r, err
		}
	}
	r.conclude()
	return r, nil
}

// connect turns peer access on between all GPUs that can have it.
func connect(m Machine, on bool) error {
	n := len(m.GPUs())
	for a := range n {
		for b := range a {
			if m.Peer(a, b) != nil || m.Peer(b, a) != nil {
				continue
			}
			if err := m.SetPeer(a, b, on); err != nil {
				return err
			}
		}
	}
	return nil
}

// conclude gives the verdict on all.
func (r *Report) conclude() {
	r.Verdict = result.Pass
	r.Findings = append(r.Findings, r.linkFindings()...)
	for _, f := range r.Families {
		for _, c := range f.Cells {
			r.Verdict = result.Worst(r.Verdict, c.Verdict)
		}
	}
	for _, f := range r.Findings {
		r.Verdict = result.Worst(r.Verdict, f.Verdict)
	}
}
