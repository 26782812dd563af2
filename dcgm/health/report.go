package health

import (
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/assay-hpc/assay/harness/result"
)

// Schema is the version of a Report's JSON.
const Schema = 1

// A Report is what harness health prints.
type Report struct {
	Schema  int            `json:"schema"`
	Version string         `json:"version"` // the harness's
	Host    string         `json:"host,omitempty"`
	Time    time.Time      `json:"time"`
	Seconds float64        `json:"seconds"` // that reading took
	Driver  string         `json:"driver,omitempty"`
	CUDA    int            `json:"cuda,omitempty"` // the driver's: 13000 for 13.0
	GPUs    []reportGPU    `json:"gpus"`
	Window  float64        `json:"window_seconds"` // for which counters were watched
	Since   float64        `json:"since_seconds"`  // how far back the kernel's log counts; 0 is all of it
	Log     string         `json:"log,omitempty"`  // the file that it was read from
	Verdict result.Verdict `json:"verdict"`        // the worst of the results
	Count   map[string]int `json:"count"`          // of results by verdict
	Results []Result       `json:"results"`
}

// A reportGPU names a GPU.
type reportGPU struct {
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	Bus   string `json:"bus,omitempty"`
}

// NewReport sums up what was read and what came out.
func NewReport(version string, s *State, x Expect, results []Result) *Report {
	r := &Report{
		Schema: Schema, Version: version, Host: s.Node.System.Value.Host, Time: s.Time.UTC().Truncate(time.Second), Seconds: s.Took.Seconds(),
		Driver: s.Driver.Value.Version, CUDA: s.Driver.Value.CUDA, GPUs: []reportGPU{}, Window: s.Window.Seconds(), Since: x.Since.Seconds(),
		Log: s.Node.Log.Value.File, Verdict: result.Worst(verdicts(results)...), Count: map[string]int{}, Results: results,
	}
	for i := range s.GPUs {
		o := s.GPUs[i].object()
		r.GPUs = append(r.GPUs, reportGPU{Index: i, Name: s.GPUs[i].Name.Value, UUID: o.UUID, Bus: o.Bus})
	}
	for _, v := range result.Verdicts() {
		r.Count[string(v)] = 0
	}
	for _, one := range results {
		r.Count[string(one.Verdict)]++
	}
	if r.Results == nil {
		r.Results = []Result{}
	}
	return r
}

// WriteJSON writes the report as one document.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// byCheck groups results by their check, in order.
func (r *Report) byCheck() [][]Result {
	var out [][]Result
	for _, one := range r.Results {
		if n := len(out); n > 0 && out[n-1][0].ID == one.ID {
			out[n-1] = append(out[n-1], one)
			continue
		}
		out = append(out, []Result{one})
	}
	return out
}

// faults are the results that need a reader: fail before error before warn.
func (r *Report) faults() []Result {
	var out []Result
	for _, v := range []result.Verdict{result.Fail, result.Error, result.Warn} {
		for _, one := range r.Results {
			if one.Verdict == v {
				out = append(out, one)
			}
		}
	}
	return out
}

// verdicts are those of results, the worst first.
func verdicts(results []Result) []result.Verdict {
	return slices.DeleteFunc(result.Verdicts(), func(v result.Verdict) bool {
		return !slices.ContainsFunc(results, func(r Result) bool { return r.Verdict == v })
	})
}
