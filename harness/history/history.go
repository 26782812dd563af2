// Package history turns many certificates into a time line. For each machine, GPU, port and pair
// it shows how a measured value changed from one certificate to the next, which drivers, firmware
// and verdicts changed, and where a value has drifted by more than its noise. It is pure:
// certificates go in through [Collector.Add], and a [History] comes out.
//
// # When a change is a drift
//
// There are two kinds of drift. Both are found through medians, so that a single outlier neither
// causes nor hides one:
//
//   - a step: the split of the series into two levels with the points nearest to their level's
//     median; at least three points before it and two after;
//   - a trend: the Theil-Sen line (Theil 1950; Sen, JASA 63, 1968). Sen's 99.9 % confidence
//     interval of its slope must exclude zero; at least eight points.
//
// The noise is the largest of four estimates of the standard deviation σ: from the median
// absolute deviation of the residuals, from that of successive differences, from the spreads that
// certificates state, and from how values were rounded. A change is a drift if it is larger than
// the tolerance and larger than 3 σ. A step must also be larger than 5+24/m standard errors,
// where m is the smaller number of points on a side: the fewer points, the less certain is the
// noise. On pure noise, normal or with heavy tails, a test finds fewer than one false drift in a
// thousand series.
package history

import (
	"fmt"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// Version is the version of History's JSON.
const Version = 1

// DefaultTolerance is the relative change up to which nothing is called a drift.
const DefaultTolerance = 0.02

// A History is the content of machines' certificates over time.
type History struct {
	Version      int       `json:"version"`
	Tolerance    float64   `json:"tolerance"`    // relative
	Certificates int       `json:"certificates"` // that it was made from
	Repeated     int       `json:"repeated"`     // that were found more than once, and count once
	Refused      int       `json:"refused"`      // that could not be read, or that no trusted key signed; the caller's count
	Machines     []Machine `json:"machines"`     // by name, then digest
}

// A Machine is one subject of certificates: a node or, without one, an image.
type Machine struct {
	Name         string          `json:"name"`
	Digest       string          `json:"digest"` // "sha256:…", of its identity
	Certificates int             `json:"certificates"`
	First        time.Time       `json:"first"` // when the first and the last certificate were finished
	Last         time.Time       `json:"last"`
	Series       []Series        `json:"series"` // in the order of the last certificate that contains each
	Changes      []Change        `json:"changes"`
	Verdicts     []VerdictChange `json:"verdicts"`
	Runs         []Run           `json:"-"` // its certificates, the oldest first
	Suites       int             `json:"-"` // number of suites of these certificates
}

// DriftLines describes the drifts, one line each.
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

// InSuite returns the suffix for the name of a figure or a verdict: its suite, if there are
// several.
func (m *Machine) InSuite(suite string) string {
	if m.Suites < 2 {
		return ""
	}
	return ", suite " + suite
}

// A Run is one certificate's record.
type Run struct {
	At              time.Time // when it was finished
	Took            time.Duration
	Suite           string
	Verdict         result.Verdict
	Checks          map[result.Verdict]int // number of checks with each verdict
	Harness, Driver string
}

// A Thing is the subject of a figure.
type Thing struct {
	Suite    string `json:"suite,omitempty"` // the suite that it was measured by
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
	Trend  *Trend  `json:"trend,omitempty"` // with three points or more
	Drift  *Drift  `json:"drift,omitempty"`

	Better result.Better `json:"-"`
	Limit  *result.Limit `json:"-"` // the last one
	Values []Value       `json:"-"` // the oldest first
}

// A Value is a point of a series.
type Value struct {
	At      time.Time
	Value   float64
	Verdict result.Verdict // of the object, or of the check if the figure is the check's own
	spread  float64        // half of the stated spread; 0 for none
}

// A Trend is a series' slope per day, with its 95 % confidence interval if there are enough
// points.
type Trend struct {
	PerDay float64  `json:"perDay"`
	Low    *float64 `json:"low,omitempty"`
	High   *float64 `json:"high,omitempty"`
}

// DriftKind says how a value drifted.
type DriftKind string

// The kinds of drifts.
const (
	Step     DriftKind = "step"     // from one certificate to the next, permanently
	Slope    DriftKind = "trend"    // gradual
	Compared DriftKind = "compared" // between two certificates
)

// A Drift is a change that tolerance and noise do not explain.
type Drift struct {
	Thing
	Kind   DriftKind `json:"kind"`
	Before float64   `json:"before"`
	After  float64   `json:"after"`
	Change float64   `json:"change"`         // relative to Before; 0 where that is 0
	Noise  float64   `json:"noise"`          // in Unit: half the width of the range that noise explains
	From   time.Time `json:"from"`           // the value was as before until then,
	To     time.Time `json:"to"`             // and as after from then on
	Better bool      `json:"better"`         // an improvement, which never counts as a failure
	With   []Change  `json:"with,omitempty"` // what else changed between From and To
}

// A Change is a version that differs from the one in the certificate before.
type Change struct {
	At   time.Time `json:"at"` // when the first certificate with it was finished
	What string    `json:"what"`
	From string    `json:"from"`
	To   string    `json:"to"`
}

// A VerdictChange is a change of a check's verdict (or, without Check, of the whole
// certificate's) from one certificate of a suite to the next. Skipped checks are ignored.
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

// Worse returns how many drifts are not improvements.
func (h *History) Worse() (n int) {
	for _, d := range h.Drifts() {
		if !d.Better {
			n++
		}
	}
	return n
}
