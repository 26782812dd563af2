package perf

import (
	"fmt"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/flip"
)

// A Result is the result of a run. Only the process with rank 0 has rows.
type Result struct {
	Rows        []Row    // at most 65,536 of them
	OutOfBounds int      // failed checks, one for each size and placement
	AvgBusBW    float64  // GB/s: the mean over all rows and both placements
	WrongOn     []string // ranks with wrong data, with their devices
	MinBusBW    float64  // NCCL_TESTS_MIN_BW; 0: not set
	Status      Status
	Straggler   *StragglerSummary // nil with one rank
	Shape       *ShapeResult
	Split       *SplitResult
	Versus      *VersusResult
}

// fast reports whether the bandwidth reaches MinBusBW: nccl-tests tolerates a tenth less.
func (r *Result) fast() bool { return r.AvgBusBW >= 0.9*r.MinBusBW }

func (r *Result) settle() {
	if r.OutOfBounds > 0 || r.MinBusBW > 0 && r.Versus == nil && !r.fast() {
		r.Status = BadData
	}
}

// A StragglerSummary is the rank that was the straggler most often.
type StragglerSummary struct {
	Rank    int     `json:"rank"`
	Host    string  `json:"host"`
	Often   int     `json:"placements"` // how often it was the straggler
	Of      int     `json:"of"`
	Excess  float64 `json:"excess_us"`  // mean over those placements, per operation
	Percent float64 `json:"excess_pct"` // of the time of an operation
}

// A Row is one line of the table: a size, out of place and in place.
type Row struct {
	Bytes      int64     `json:"bytes"`
	Count      int64     `json:"count"`
	Type       string    `json:"type"`
	Redop      string    `json:"redop"`
	Root       int       `json:"root"` // -1: no root
	Iterations int       `json:"iterations"`
	OutOfPlace Placement `json:"out_of_place"`
	InPlace    Placement `json:"in_place"`

	at time.Time
}

// A Placement is half of a row. Time is that of one operation.
type Placement struct {
	Time    float64 `json:"time_us"`
	AlgBW   float64 `json:"algbw_gbs"`
	BusBW   float64 `json:"busbw_gbs"`
	Wrong   int64   `json:"wrong"`              // elements, over all ranks; -1: not verified
	WrongOn []int   `json:"wrong_on,omitempty"` // ranks
	// Suspects are, for each of the first wrong elements of a reduction on GPUs, who may be at fault.
	Suspects  [][]flip.Suspect `json:"suspects,omitempty"`
	Algorithm string           `json:"algorithm,omitempty"`
	Straggler *Straggler       `json:"straggler,omitempty"`
	Iter      *IterStats       `json:"iterations,omitempty"`
	Slowest   []Step           `json:"slowest,omitempty"` // longest first; --slowest
}

// notable is the percentage from which on a rank that is behind in most of the measurements
// counts as a straggler.
const notable = 5

// Notable reports whether the rank is behind by more than chance explains.
func (t *StragglerSummary) Notable() bool { return t.Percent >= notable && 2*t.Often > t.Of }

func (t *StragglerSummary) String() string {
	who := fmt.Sprintf("rank %d on %s, %.2f us (%.1f%%) behind the median rank in %d of %d measurements", t.Rank, t.Host, t.Excess, t.Percent, t.Often, t.Of)
	if !t.Notable() {
		return "none; most often it is " + who
	}
	return who
}

// Wrong says that data was wrong, or slower than required; nil: neither.
func (r *Result) Wrong() error {
	switch {
	case r.OutOfBounds > 0:
		results := 2 * len(r.Rows)
		if r.Versus != nil {
			for _, row := range r.Versus.Rows {
				results += len(row.Engines)
			}
		}
		on := ""
		if len(r.WrongOn) > 0 {
			on = ", on " + strings.Join(r.WrongOn, ", ")
		}
		return fmt.Errorf("%d of %d results were wrong%s", r.OutOfBounds, results, on)
	case r.Status != OK:
		return fmt.Errorf("the average bus bandwidth of %.3f GB/s is below 0.9 times NCCL_TESTS_MIN_BW, %.3f GB/s", r.AvgBusBW, r.MinBusBW)
	}
	return nil
}
