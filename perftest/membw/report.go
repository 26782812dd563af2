package membw

import (
	"context"
	"fmt"
	"time"

	"github.com/assay-hpc/assay/internal/host/nvml"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// Host is the end of a pair that is the host instead of a GPU.
const Host = -1

// A Report contains the measurements of a node: a result for each family, with an object for each
// GPU or pair, and one for the links and their counters.
type Report struct {
	result.Report
	Driver  string    `json:"driver,omitempty"`
	Bytes   int       `json:"bytes"` // per copy
	Samples int       `json:"samples"`
	Copies  int       `json:"copies"` // timed by a sample
	Warmup  int       `json:"warmup"` // untimed copies before those
	GPUs    []Subject `json:"gpus"`
}

// A Subject is a GPU with its expected peaks.
type Subject struct {
	GPU
	Model string      `json:"model,omitempty"` // in the hardware database; "": not found there
	Peaks peakRates   `json:"peaks"`
	Links *nvml.Links `json:"links,omitempty"` // before the first family; nil: not known
}

// peakRates are in GB/s, one direction; 0 is not known.
type peakRates struct {
	PCIe    float64 `json:"pcie"`
	NVLink  float64 `json:"nvlink"` // all links together
	NVLinks int     `json:"nvlinks"`
	Memory  float64 `json:"memory"` // a copy within the GPU can reach half of it
}

// ends are the two ends of a figure, which are those of a copy. Each is a GPU or Host.
type ends struct{ from, to int }

// gpu is the GPU of a pair that is not between two GPUs.
func (p ends) gpu() int { return max(p.from, p.to) }

// between reports whether the pair is of two GPUs.
func (p ends) between() bool { return p.from != p.to && p.from != Host && p.to != Host }

// name is the pair for human-readable text.
func (p ends) name() string {
	if p.between() {
		return fmt.Sprintf("GPU %d to %d", p.from, p.to)
	}
	return gpuName(p.gpu())
}

func gpuName(i int) string { return fmt.Sprintf("GPU %d", i) }

// rival is the quantity of the same copies by synchronous calls, alternating with ours.
const rival = "cuMemcpy"

// Options define how a Report is made.
type Options struct {
	Bytes    int
	Samples  int
	Copies   int
	Warmup   int
	Accesses int      // per sample of latency
	Families []string // only these; empty: all
	Versus   bool     // compare with cuMemcpy
	DB       *platform.DB
	Links    func() (map[sysfs.BusID]nvml.Links, error) // nil: not known
	Progress func(text string)                          // nil: no progress is reported
}

// Defaults are suitable for a node of eight GPUs: the copies are larger than caches, and the run
// takes less than a minute.
func Defaults() Options {
	return Options{Bytes: 512 << 20, Samples: 5, Copies: 8, Warmup: 2, Accesses: 1 << 16}
}

// Run measures all families. It returns an error only on an interrupt: failures are in the report.
func (o Options) Run(ctx context.Context, m Machine) (*Report, error) {
	begun := time.Now()
	r := &Report{Report: result.Report{Kind: "bandwidth", Time: begun.UTC().Truncate(time.Second)}, Bytes: o.Bytes, Samples: o.Samples, Copies: o.Copies, Warmup: o.Warmup}
	if o.Links == nil {
		o.Links = func() (map[sysfs.BusID]nvml.Links, error) { return nil, nil }
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	links, _ := o.Links() // on an error the links are not known
	for _, g := range m.GPUs() {
		r.GPUs = append(r.GPUs, subject(g, links, o.DB))
	}
	j := &job{Machine: m, Options: o, report: r, links: links, unconnected: connect(m, true)}
	for _, f := range families {
		if !wanted(f.name, o.Families) {
			continue
		}
		if err := j.family(ctx, f); err != nil {
			return r, err
		}
	}
	r.Results = append(r.Results, j.linkResult())
	r.Seconds = time.Since(begun).Seconds()
	r.Sum()
	return r, nil
}

// connect sets peer access between all GPUs that support it.
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
