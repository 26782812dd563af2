package diag

import (
	"fmt"

	"github.com/assay-hpc/assay/harness/platform"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/sysfs"
)

// NoGPU is for what is about no GPU in particular.
const NoGPU = -1

// A Finding is what is wrong, and what to do.
type Finding struct {
	GPU    int            `json:"gpu"` // NoGPU: none in particular
	Status result.Verdict `json:"status"`
	Text   string         `json:"text"`
	Remedy string         `json:"remedy,omitempty"`
}

// A Measurement is a figure. Reference is what the hardware should reach, where
// that is known; Source says who says so.
type Measurement struct {
	Name      string  `json:"name"`
	GPU       int     `json:"gpu"`
	Peer      *int    `json:"peer,omitempty"` // the other GPU
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Reference float64 `json:"reference,omitempty"`
	Source    string  `json:"source,omitempty"`
	// Peak is the hardware's own figure, Typical what was published of healthy nodes.
	Peak    *platform.Cited `json:"peak,omitempty"`
	Typical *platform.Cited `json:"typical,omitempty"`
	// Less than Floor fails; FloorSource says who says so.
	Floor       float64 `json:"floor,omitempty"`
	FloorSource string  `json:"floor_source,omitempty"`
}

// A Result is one test's.
type Result struct {
	Engine       string         `json:"engine"`
	Test         string         `json:"test"`
	Category     string         `json:"category"`
	Status       result.Verdict `json:"status"`
	Reason       string         `json:"reason,omitempty"` // of a skip or an error
	Seconds      float64        `json:"seconds"`
	Findings     []Finding      `json:"findings,omitempty"`
	Measurements []Measurement  `json:"measurements,omitempty"`
	Output       string         `json:"output,omitempty"` // what a test that broke had printed, the beginning and the end
}

// A GPU is one, as CUDA counts in this process.
type GPU struct {
	Index     int         `json:"index"`
	Name      string      `json:"name"`
	UUID      string      `json:"uuid"`
	Bus       sysfs.BusID `json:"bus"`
	PCIDevice string      `json:"pci_device,omitempty"` // four hex digits
	Bytes     int64       `json:"bytes"`
	SMs       int         `json:"sms"`
	Compute   string      `json:"compute_capability"`
}

// A Report is a whole run.
type Report struct {
	GPUs    []GPU
	Status  result.Verdict
	Engines []Engine
	Tests   []Result
}

// Assay is the name of this package's engine.
const Assay = "assay"

// An Engine is what carried tests out. Others than Assay number GPUs in their own
// way.
type Engine struct {
	Name    string
	Version string // nothing for this program's own
	Driver  string
	Status  result.Verdict
	Reason  string // of an engine that was skipped
	Seconds float64
}

// Add adds what another engine found.
func (r *Report) Add(e Engine, tests []Result) {
	for _, t := range tests {
		t.Engine = e.Name
		r.Tests = append(r.Tests, t)
	}
	r.Engines = append(r.Engines, e)
	r.judge()
}

// judge sets the statuses of the report and its engines: the worst of the tests.
// Where all were skipped nothing has been shown, and that is no pass.
func (r *Report) judge() {
	r.Status = result.Skip
	for i, e := range r.Engines {
		r.Engines[i].Status = result.Skip
		for _, t := range r.Tests {
			if t.Engine == e.Name {
				r.Engines[i].Status = result.Worst(r.Engines[i].Status, t.Status)
			}
		}
		r.Status = result.Worst(r.Status, r.Engines[i].Status)
	}
}

// addf adds a finding, which the result is as bad as.
func (r *Result) addf(gpu int, s result.Verdict, remedy, format string, a ...any) {
	r.Findings = append(r.Findings, Finding{gpu, s, fmt.Sprintf(format, a...), remedy})
	r.Status = result.Worst(r.Status, s)
}

// skip ends the test as one that does not apply.
func (r *Result) skip(format string, a ...any) {
	r.Status, r.Reason = result.Skip, fmt.Sprintf(format, a...)
}
