// Package fleet compares the certificates of many machines with one another: it names the machines
// that lie apart from their peers, the groups that a version sets apart, failed checks, versions
// that differ, and who has not been certified. It is pure: certificates go in through
// [Collector.Add], and a [Fleet] comes out.
//
// # Peers
//
// A figure is compared among machines of one kind: the same GPUs, the same number of them, and the
// same kind of links. Each object is compared with the object of the same name on the others (GPU 3
// with GPU 3), since places in a machine differ.
//
// # When a machine is an outlier
//
// Distances are ratios to the median of the peers (differences for temperatures and percentages).
// Two distances are tested for each machine and figure: that of its worst object, and the median
// over its objects. The noise is the median absolute deviation over the peers. A machine is an
// outlier if it is worse than its peers by more than [Practical], and by more than a threshold that
// one healthy fleet in a hundred exceeds anywhere: a quantile of Student's t for the number of
// peers, corrected for all figures, machines and objects (Bonferroni), and for tails that are
// heavier than normal (the h of Tukey's g-and-h distribution, Hoaglin 1985, over all figures).
//
// # When a group is set apart
//
// A group of at least two machines that share a version is set apart if its median differs from
// that of the others by more than [Practical], and if the machines with the version are the most
// extreme ones to a degree that chance explains in less than one fleet in a hundred
// (hypergeometric). Its members are then compared with one another. A figure whose values lie in
// two separate clusters without a version that explains them is a group without a cause.
package fleet

import (
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// Version is the version of Fleet's JSON.
const Version = 1

// Practical is the relative distance from peers up to which no machine is an outlier. For
// percentages it is as many points, for temperatures [PracticalDegrees].
const (
	Practical        = 0.02
	PracticalDegrees = 5 // °C
)

// MinPeers is the smallest number of machines of a kind that are compared.
const MinPeers = 5

// A Fleet is what certificates say about machines beside one another.
type Fleet struct {
	Version      int       `json:"version"`
	At           time.Time `json:"at"`           // ages are relative to it
	Certificates int       `json:"certificates"` // that it was made from
	Repeated     int       `json:"repeated"`     // that were found more than once, and count once
	Refused      int       `json:"refused"`      // that could not be read, or that no trusted key signed
	Other        int       `json:"other"`        // that are about images and not about machines
	Nodes        []Node    `json:"nodes"`        // by name
	Kinds        []Kind    `json:"kinds"`        // of machines, the largest first
	Figures      []Figure  `json:"figures"`      // that were compared
	Outliers     []Outlier `json:"outliers"`     // the worst first
	Groups       []Group   `json:"groups"`       // that a version sets apart, the largest difference first
	Failures     []Failure `json:"failures"`     // checks with a problem, the worst and most frequent first
	Versions     []Facts   `json:"versions"`     // that differ within a kind
	Coverage     Coverage  `json:"coverage"`
}

// A Node is a machine, by its name.
type Node struct {
	Name    string         `json:"name"`
	Digest  string         `json:"digest"` // of its identity, "sha256:…"
	Kind    int            `json:"kind"`   // index in Kinds
	Verdict result.Verdict `json:"verdict"`
	Suites  []Suite        `json:"suites"` // the latest certificate of each suite
	// Distances are the figures in which it lies apart, better or worse, as parts of the threshold:
	// 1 and more is an outlier. Those within ±0.5 are left out.
	Distances []Distance `json:"distances,omitempty"`
}

// A Suite is the latest certificate of a suite.
type Suite struct {
	Suite    string                 `json:"suite"`
	Verdict  result.Verdict         `json:"verdict"`
	Finished time.Time              `json:"finished"`
	Checks   map[result.Verdict]int `json:"checks"`
	Earlier  int                    `json:"earlier"` // certificates of the suite before it
}

// A Distance says how far a machine lies from its peers in one figure.
type Distance struct {
	Figure int     `json:"figure"` // index in Figures
	Of     float64 `json:"of"`     // part of the threshold; negative: better than the peers
}

// A Kind is a kind of machines that are peers.
type Kind struct {
	Name     string `json:"name"`
	Nodes    int    `json:"nodes"`
	Compared bool   `json:"compared"` // false: too few
}

// A Figure is one quantity of a check, on all machines of a kind.
type Figure struct {
	Kind     int     `json:"kind"`
	Suite    string  `json:"suite"`
	Check    string  `json:"check"`
	Quantity string  `json:"quantity,omitempty"`
	Unit     string  `json:"unit"`
	Nodes    int     `json:"nodes"`
	Median   float64 `json:"median"`
	// Low and High contain nine tenths of the machines, each by the median of its objects.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Noise is a robust standard deviation over machines, and Threshold the distance that decides;
	// both are relative, or in Unit if Absolute.
	Noise     float64       `json:"noise"`
	Threshold float64       `json:"threshold"`
	Absolute  bool          `json:"absolute,omitempty"`
	Better    result.Better `json:"-"`
	// Histogram counts machines in equal steps from the least to the largest value.
	Histogram []int   `json:"histogram"`
	Least     float64 `json:"least"`
	Largest   float64 `json:"largest"`
}

// Name returns the figure's check and quantity.
func (f *Figure) Name() string {
	if f.Quantity == "" {
		return f.Check
	}
	return f.Check + ", " + f.Quantity
}

// A Deviation is a figure in which a machine is worse than its peers.
type Deviation struct {
	Figure int    `json:"figure"`
	Object string `json:"object,omitempty"` // "": all objects of the machine together
	Peer   string `json:"peer,omitempty"`
	// Others is the number of further objects of the figure that are as far off.
	Others int     `json:"others,omitempty"`
	Value  float64 `json:"value"`
	Median float64 `json:"median"` // of the same object on the peers, or of their typical objects
	Change float64 `json:"change"` // from Median: relative, or in the figure's unit if that is Absolute
	Of     float64 `json:"of"`     // distance as a part of the threshold
	Over   []Point `json:"over,omitempty"`
}

// A Point is a value of an earlier or the latest certificate.
type Point struct {
	At    time.Time `json:"at"`
	Value float64   `json:"value"`
}

// An Outlier is a machine that lies apart from its peers.
type Outlier struct {
	Node       string      `json:"node"`
	Peers      int         `json:"peers"`
	Deviations []Deviation `json:"deviations"` // the largest first
	Causes     []string    `json:"causes"`     // what may explain it, the most likely first
	Remedy     string      `json:"remedy"`
}

// A Group is machines that something sets apart from their peers.
type Group struct {
	Kind    int      `json:"kind"`
	What    string   `json:"what,omitempty"` // "driver"; "" if nothing that certificates record explains it
	Value   string   `json:"value,omitempty"`
	Also    []string `json:"also,omitempty"` // other versions that exactly these machines share
	Nodes   []string `json:"nodes"`
	Against int      `json:"against"` // number of peers
	Figures []Change `json:"figures"` // the largest change first
}

// A Change is the difference of a group from its peers in one figure.
type Change struct {
	Figure int     `json:"figure"`
	Median float64 `json:"median"` // of the group's machines
	Peers  float64 `json:"peers"`  // of the others
	Change float64 `json:"change"` // relative, or in the figure's unit if that is Absolute
	Worse  bool    `json:"worse"`
}

// A Failure is a check that failed, could not run or warned, on some machines.
type Failure struct {
	Check   string         `json:"check"`
	Title   string         `json:"title"`
	Verdict result.Verdict `json:"verdict"`
	Nodes   []string       `json:"nodes"`
	Reason  string         `json:"reason"` // of the first machine
	Reasons int            `json:"reasons"`
	Remedy  string         `json:"remedy,omitempty"`
}

// Facts are the values of a version or a setting that differ within a kind.
type Facts struct {
	Kind   int    `json:"kind"`
	What   string `json:"what"`
	Values []Fact `json:"values"` // the most frequent first
}

// A Fact is one value and the machines that have it; "" is none.
type Fact struct {
	Value string   `json:"value"`
	Nodes []string `json:"nodes"`
}

// Coverage says which machines have certificates.
type Coverage struct {
	Expected   int            `json:"expected"` // number of machines that should have one; 0: not given
	Missing    []string       `json:"missing"`  // expected, and without a certificate
	Unexpected []string       `json:"unexpected"`
	Lost       []Lost         `json:"lost"`       // machines from which a cluster's run got no certificate
	NotRun     []string       `json:"notRun"`     // whose checks could not run
	Old        []string       `json:"old"`        // whose latest certificate is older than MaxAge
	MaxAge     float64        `json:"maxAge"`     // seconds
	Youngest   float64        `json:"youngest"`   // age of the latest certificate of a machine, seconds
	Oldest     float64        `json:"oldest"`     // likewise
	OldestNode string         `json:"oldestNode"` // the machine whose that is
	Suites     []SuiteLack    `json:"suites"`
	Shared     []Shared       `json:"shared"` // names with one identity
	Verdicts   map[string]int `json:"verdicts"`
}

// Lost is a machine without a certificate, and why.
type Lost struct {
	Node   string `json:"node"`
	Reason string `json:"reason"`
}

// A SuiteLack is a suite and the machines without a certificate of it.
type SuiteLack struct {
	Suite   string   `json:"suite"`
	Nodes   int      `json:"nodes"`
	Without []string `json:"without"`
}

// Shared is names of machines that have one identity: one was renamed, or a machine-id was cloned.
type Shared struct {
	Digest string   `json:"digest"`
	Nodes  []string `json:"nodes"`
}
