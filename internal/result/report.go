package result

import (
	"time"
)

// ReportSchema is the version of a Report's JSON.
const ReportSchema = 2

// A Report contains the results of one kind of checks. It is the JSON that a command of the
// harness such as health prints, and that certify reads.
type Report struct {
	Schema  int             `json:"schema"`  // ReportSchema
	Kind    string          `json:"kind"`    // of checks: health
	Version string          `json:"version"` // the harness's
	Host    string          `json:"host,omitempty"`
	Time    time.Time       `json:"time"`
	Seconds float64         `json:"seconds"` // total time
	Verdict Verdict         `json:"verdict"` // Summary of the results
	Count   map[Verdict]int `json:"count"`   // of results
	Results []Result        `json:"results"`
}

// Sum fills in the fields that follow from the results.
func (r *Report) Sum() {
	r.Schema, r.Verdict, r.Count = ReportSchema, Summary(r.Results), Count(r.Results)
	if r.Results == nil {
		r.Results = []Result{}
	}
}

// Of returns the result of a check.
func (r *Report) Of(id string) Result {
	for _, one := range r.Results {
		if one.ID == id {
			return one
		}
	}
	return Errored("the report of harness %s has nothing about %s", r.Kind, id)
}
