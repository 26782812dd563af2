package diag

import (
	"fmt"

	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
)

// NoGPU means no particular GPU.
const NoGPU = -1

// A Finding is a problem with its remedy.
type Finding struct {
	GPU    int            `json:"gpu"` // or NoGPU
	Status result.Verdict `json:"status"`
	Text   string         `json:"text"`
	Remedy string         `json:"remedy,omitempty"`
}

// A Measurement is a measured value. Reference is what the hardware should reach, if that is known;
// Source is the source of it.
type Measurement struct {
	Name      string  `json:"name"`
	GPU       int     `json:"gpu"`
	Peer      *int    `json:"peer,omitempty"` // the other GPU
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Reference float64 `json:"reference,omitempty"`
	Source    string  `json:"source,omitempty"`
	// Peak is the hardware's specified value, Typical what was published about healthy nodes.
	Peak    *platform.Cited `json:"peak,omitempty"`
	Typical *platform.Cited `json:"typical,omitempty"`
	// A value below Floor fails; FloorSource is the source of it.
	Floor       float64 `json:"floor,omitempty"`
	FloorSource string  `json:"floor_source,omitempty"`
}

// A Result is the result of one test.
type Result struct {
	Engine       string         `json:"engine"`
	Test         string         `json:"test"`
	Category     string         `json:"category"`
	Status       result.Verdict `json:"status"`
	Reason       string         `json:"reason,omitempty"` // of a skip or an error
	Seconds      float64        `json:"seconds"`
	Findings     []Finding      `json:"findings,omitempty"`
	Measurements []Measurement  `json:"measurements,omitempty"`
	Output       string         `json:"output,omitempty"` // of a failed child: the beginning and the end of what it printed
}

// A GPU is a GPU, with CUDA's index in this process.
type GPU struct {
	Index     int         `json:"index"`
	Name      string      `json:"name"`
	UUID      string      `json:"uuid"`
	Bus       sysfs.BusID `json:"bus"`
	PCIDevice string      `json:"pci_device,omitempty"` // four hex digits
	Bytes     int64       `json:"bytes"`
	SMs       int         `json:"sms"`
}

// A Report is the result of a whole run.
type Report struct {
	GPUs    []GPU
	Status  result.Verdict
	Engines []Engine
	Tests   []Result
}

// Assay is the name of this package's engine.
const Assay = "assay"

// An Engine is the program that carried out tests. Engines other than Assay have their own
// numbering of GPUs.
type Engine struct {
	Name    string
	Version string // empty for this program itself
	Driver  string
	Status  result.Verdict
	Reason  string // for an engine that was skipped
	Seconds float64
}

// Add adds the results of another engine.
func (r *Report) Add(e Engine, tests []Result) {
	for _, t := range tests {
		t.Engine = e.Name
		r.Tests = append(r.Tests, t)
	}
	r.Engines = append(r.Engines, e)
	r.judge()
}

// judge sets the statuses of the report and its engines to the worst of the tests. If all tests
// were skipped the status is a skip, not a pass, because nothing was tested.
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

// addf adds a finding, and makes the result at least as bad as it.
func (r *Result) addf(gpu int, s result.Verdict, remedy, format string, a ...any) {
	r.Findings = append(r.Findings, Finding{gpu, s, fmt.Sprintf(format, a...), remedy})
	r.Status = result.Worst(r.Status, s)
}

// skip marks the test as not applicable.
func (r *Result) skip(format string, a ...any) {
	r.Status, r.Reason = result.Skip, fmt.Sprintf(format, a...)
}
