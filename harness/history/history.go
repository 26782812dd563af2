// Package history reads many certificates as one story: for each machine, GPU, port
// and pair how a measured value went from one certificate to the next, what changed
// of drivers and firmware, which verdicts changed, and where a value has drifted
// further than its noise. It is pure: certificates go in, by [Collector.Add], and a
// [History] comes out.
//
// # When a change is a drift
//
// Two kinds are looked for, both by medians, so that no single odd value makes one
// or hides one:
//
//   - a step: the split of the series into two levels whose points lie nearest to
//     their level's median, three points or more before it and two or more after;
//   - a trend: the Theil-Sen line (Theil 1950; Sen, JASA 63, 1968), whose slope's
//     99.9 % confidence interval, Sen's, must not hold zero; eight points or more.
//
// The noise is the largest of four estimates of the standard deviation σ: from the
// median absolute deviation of the residuals, from that of successive differences,
// from the spreads that certificates state, and from how values were rounded. A
// change is a drift if it is larger than the tolerance, larger than 3 σ, and for a
// step 5+24/m standard errors, where m is the smaller number of points on a side:
// the fewer there are, the less the noise is known. On pure noise, normal or with
// heavy tails, a test finds fewer than one false drift in a thousand series.
package history

import (
	"fmt"
	"time"

	"github.com/assay-hpc/assay/harness/result"
)

// Version is the version of History's JSON.
const Version = 1

// DefaultTolerance is the relative change that is never called a drift.
const DefaultTolerance = 0.02

// A History is what certificates say of machines over time.
type History struct {
	Version      int       `json:"version"`
	Tolerance    float64   `json:"tolerance"`    // relative
	Certificates int       `json:"certificates"` // that it is made of
	Repeated     int       `json:"repeated"`     // that were there more than once, and count once
	Refused      int       `json:"refused"`      // that could not be read, or that no trusted key signed; the caller's count
	Machines     []Machine `json:"machines"`     // by name, then digest
}

// A Machine is one subject of certificates: a node, or else an image.
type Machine struct {
	Name         string          `json:"name"`
	Digest       string          `json:"digest"` // "sha256:…", of its identity
	Certificates int             `json:"certificates"`
	First        time.Time       `json:"first"` // when the first and the last one was finished
	Last         time.Time       `json:"last"`
	Series       []Series        `json:"series"` // in the order of the last certificate that has each
	Changes      []Change        `json:"changes"`
	Verdicts     []VerdictChange `json:"verdicts"`
	Runs         []Run           `json:"-"` // its certificates, the oldest first
	Suites       int             `json:"-"` // how many suites those are of
}

// DriftLines says what drifted, a line each.
func (m *Machine) DriftLines() (lines []string) {
	for _, s := range m.Series {
		if s.Drift == nil {
			continue
		}
		mark := "drift "
		if s.Drift.Better {
			mark = "better"
		}
		lines = append(lines, fmt.Sprintf("%s  %s%s", mark, s.Drift, m.InSuite(s.Suite)))
	}
	return lines
}

// InSuite is what follows the name of a figure or a verdict: its suite, where there are
// several.
func (m *Machine) InSuite(suite string) string {
	if m.Suites < 2 {
		return ""
	}
	return ", suite " + suite
}

// A Run is a certificate's own.
type Run struct {
	At              time.Time // when it was finished
	Took            time.Duration
	Suite           string
	Verdict         result.Verdict
	Checks          map[result.Verdict]int // how many had each
	Harness, Driver string
}

// A Thing is what a figure is about.
type Thing struct {
	Suite    string `json:"suite,omitempty"` // whose parameters it was measured with
	Check    string `json:"check"`
	Object   string `json:"object,omitempty"` // "GPU 3"; "" for a check's own figure
	ID       string `json:"id,omitempty"`     // UUID, GUID
	Peer     string `json:"peer,omitempty"`
	PeerID   string `json:"peerID,omitempty"`
	Quantity string `json:"quantity,omitempty"`
	Unit     string `json:"unit"`
}

// A Series is one figure over time.
type Series struct {
	Thing
	Points int     `json:"points"`
	First  float64 `json:"first"`
	Median float64 `json:"median"`
	Last   float64 `json:"last"`
	Noise  float64 `json:"noise"`           // two standard deviations, in Unit
	Trend  *Trend  `json:"trend,omitempty"` // of three points or more
	Drift  *Drift  `json:"drift,omitempty"`

	Better result.Better `json:"-"`
	Limit  *result.Limit `json:"-"` // the last one
	Values []Value       `json:"-"` // the oldest first
}

// A Value is a point of a series.
type Value struct {
	At      time.Time
	Value   float64
	Verdict result.Verdict // of the object, or of the check whose own it is
	spread  float64        // half of it; 0 for none
}

// A Trend is a series' slope a day, with its confidence interval of 95 % where there
// are points enough for one.
type Trend struct {
	PerDay float64  `json:"perDay"`
	Low    *float64 `json:"low,omitempty"`
	High   *float64 `json:"high,omitempty"`
}

// DriftKind says how a value drifted.
type DriftKind string

// The kinds of drifts.
const (
	Step     DriftKind = "step"     // from one certificate to the next, and it stayed so
	Slope    DriftKind = "trend"    // bit by bit
	Compared DriftKind = "compared" // between two certificates
)

// A Drift is a change that tolerance and noise do not explain.
type Drift struct {
	Thing
	Kind   DriftKind `json:"kind"`
	Before float64   `json:"before"`
	After  float64   `json:"after"`
	Change float64   `json:"change"`         // relative to Before; 0 where that is 0
	Noise  float64   `json:"noise"`          // in Unit: half of what noise explains
	From   time.Time `json:"from"`           // it was as before until then,
	To     time.Time `json:"to"`             // and as after from then on
	Better bool      `json:"better"`         // a change for the better, for which nothing fails
	With   []Change  `json:"with,omitempty"` // what else changed between From and To
}

// A Change is another version of something than the certificate before had.
type Change struct {
	At   time.Time `json:"at"` // when the first certificate with it was finished
	What string    `json:"what"`
	From string    `json:"from"`
	To   string    `json:"to"`
}

// A VerdictChange is a check's, or with no Check the whole certificate's, from one
// certificate of a suite to its next. What was skipped says nothing, and is passed over.
type VerdictChange struct {
	At     time.Time      `json:"at"`
	Suite  string         `json:"suite,omitempty"`
	Check  string         `json:"check,omitempty"`
	From   result.Verdict `json:"from"`
	To     result.Verdict `json:"to"`
	Reason string         `json:"reason,omitempty"`
}

// Drifts returns all drifts, for the worse and for the better.
func (h *History) Drifts() (all []Drift) {
	for _, m := range h.Machines {
		for _, s := range m.Series {
			if s.Drift != nil {
				all = append(all, *s.Drift)
			}
		}
	}
	return all
}

// Worse returns how many drifts are not for the better.
func (h *History) Worse() (n int) {
	for _, d := range h.Drifts() {
		if !d.Better {
			n++
		}
	}
	return n
}
