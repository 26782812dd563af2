// Package history turns many certificates into a time line. For each machine, GPU, port and pair
// it shows how a measured value changed from one certificate to the next, which drivers, firmware
// and verdicts changed, and where a value has drifted by more than its noise. It is pure:
// certificates go in through [Collector.Add], and a [History] comes out.
//
// # When a change is a drift
//
// A figure is judged beside its peers: the same figure of the node's other GPUs, ports or pairs, by
// their median. What they have in common is judged by itself, and so are figures of which there
// are three or fewer. The model is
//
//	y(t) = level + slope or step at an unknown time + b · peers(t) + noise(t)
//
// where y is the logarithm of the value, and the noise may be correlated from one certificate to the
// next, the less the longer the time between them. A change is found by the generalised likelihood
// ratio against no change, with the correlation fitted on both sides; it must exceed a threshold
// from simulation both for normal noise and for Student's t with four degrees of freedom. Peers, also
// those on other machines, say how correlated and how large noise is. After a step both parts are
// searched again. Single outliers, one or two certificates long, are named and left out.
//
// A change is a drift if it is also larger than the tolerance. Where there is none a series says what
// it would have shown. docs/certificate.md has measured rates.
package history

import (
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// Version is the version of History's JSON.
const Version = 2

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

	Shared    []Shared   `json:"shared"`    // changes that machines have in common with a version
	Offenders []Offender `json:"offenders"` // what failed, passed, and failed by the same check again
}

// A Machine is one subject of certificates: a node or, without one, an image.
type Machine struct {
	Name         string          `json:"name"`
	Digest       string          `json:"digest"` // "sha256:…", of its identity
	Certificates int             `json:"certificates"`
	First        time.Time       `json:"first"` // when the first and the last certificate were finished
	Last         time.Time       `json:"last"`
	Series       []Series        `json:"series"` // in the order of the last certificate that contains each
	Common       []Drift         `json:"common"` // of all GPUs, ports or pairs of a figure together
	Changes      []Change        `json:"changes"`
	Verdicts     []VerdictChange `json:"verdicts"`
	Runs         []Run           `json:"-"` // its certificates, the oldest first
	Suites       int             `json:"-"` // number of suites of these certificates
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
	Noise  float64 `json:"noise"` // two standard deviations, in Unit
	// Seen is the smallest relative change that would have been found within eight certificates, with
	// a probability of 95 %; 0 if not even half of the value would, or if there is a drift.
	Seen        float64      `json:"seen"`
	Drifts      []Drift      `json:"drifts,omitempty"`      // the oldest first
	Outliers    []Outlier    `json:"outliers,omitempty"`    // the oldest first
	NoiseChange *NoiseChange `json:"noiseChange,omitempty"` // the largest

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

// drift returns the latest drift that still holds; nil if there is none.
func (s *Series) drift() *Drift {
	for i := len(s.Drifts) - 1; i >= 0; i-- {
		if s.Drifts[i].Until == nil {
			return &s.Drifts[i]
		}
	}
	return nil
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
	All    int        `json:"all,omitempty"`    // of a change of several things together: their number
	Things string     `json:"things,omitempty"` // and what they are: "GPUs", "ports", "pairs"
	Peers  int        `json:"peers,omitempty"`  // number of things that it was judged beside; 0 if it was judged alone
	Kind   DriftKind  `json:"kind"`
	Before float64    `json:"before"`
	After  float64    `json:"after"`
	Change float64    `json:"change"`           // relative to Before, and without what the peers did; 0 where Before is 0
	Noise  float64    `json:"noise"`            // two standard deviations of one certificate, in Unit
	From   time.Time  `json:"from"`             // the value was as before until then,
	To     time.Time  `json:"to"`               // and as after from then on
	Until  *time.Time `json:"until,omitempty"`  // from then on it was as before again
	Better bool       `json:"better"`           // an improvement, which never counts as a failure
	Shared bool       `json:"shared,omitempty"` // a [Shared] says it for all machines
	With   []Change   `json:"with,omitempty"`   // versions that may explain it: they changed when it began

	earliest, latest time.Time // it began after the first, at the second at the latest
}

// quiet reports whether a drift is no reason to act: an improvement, or over.
func (d *Drift) quiet() bool { return d.Better || d.Until != nil }

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

// Drifts returns what drifted, for the worse and for the better, the worst first: of each thing, and of
// several things together, but for what [Shared] says.
func (h *History) Drifts() (all []Drift) {
	for i := range h.Machines {
		all = append(all, h.Machines[i].drifts()...)
	}
	sortDrifts(all)
	return all
}

func (m *Machine) drifts() (all []Drift) {
	for _, d := range m.Common {
		if !d.Shared {
			all = append(all, d)
		}
	}
	for _, s := range m.Series {
		for _, d := range s.Drifts {
			if !d.Shared {
				all = append(all, d)
			}
		}
	}
	return all
}

// Worse returns how many drifts, shared ones included, are neither improvements nor over.
func (h *History) Worse() (n int) {
	for _, d := range h.Drifts() {
		if !d.quiet() {
			n++
		}
	}
	for _, s := range h.Shared {
		if !s.Better {
			n++
		}
	}
	return n
}
