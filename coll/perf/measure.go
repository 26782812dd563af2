package perf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/stat"
)

// A measure is one rank's result for one placement of one size.
type measure struct {
	elapsed time.Duration // of all iterations
	issued  time.Duration // of it, until all were enqueued; 0: the operations were complete then
	wrong   int64         // of the last round of verification; negative: not verified
	chosen  string        // algorithm
	flips   []flipped     // of that round, the first ones
	samples []time.Duration
}

func (m *measure) encode() []byte {
	b := make([]byte, 0, measureHead+len(m.chosen)+8*len(m.samples))
	inputs := 0
	if len(m.flips) > 0 {
		inputs = len(m.flips[0].inputs)
	}
	for _, v := range []int64{int64(m.elapsed), int64(m.issued), m.wrong, int64(len(m.chosen)), int64(len(m.flips)), int64(inputs)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	b = append(b, m.chosen...)
	b = appendFlips(b, m.flips)
	for _, s := range m.samples {
		b = binary.LittleEndian.AppendUint64(b, uint64(s))
	}
	return b
}

// measureHead is the length of a measure's fixed part.
const measureHead = 6 * 8

var errMeasure = errors.New("a rank sent something that is not a measurement: do all ranks run the same program?")

func decodeMeasure(b []byte) (measure, error) {
	if len(b) < measureHead {
		return measure{}, errMeasure
	}
	word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	m := measure{elapsed: time.Duration(word(0)), issued: time.Duration(word(1)), wrong: word(2)}
	n, flips, inputs := word(3), word(4), word(5)
	b = b[measureHead:]
	if n < 0 || n > int64(len(b)) || (int64(len(b))-n)%8 != 0 {
		return measure{}, errMeasure
	}
	m.chosen, b = string(b[:n]), b[n:]
	var err error
	if m.flips, b, err = takeFlips(b, flips, inputs); err != nil {
		return measure{}, err
	}
	for ; len(b) > 0; b = b[8:] {
		m.samples = append(m.samples, time.Duration(binary.LittleEndian.Uint64(b)))
	}
	return m, nil
}

// A Straggler is the rank that took longest.
type Straggler struct {
	Rank   int     `json:"rank"`
	Excess float64 `json:"excess_us"` // time per operation above that of the median rank
}

// straggler finds the straggler. A collective ends at about the same time on all ranks, so that a
// single measurement shows little.
func straggler(ms []measure, ops int) Straggler {
	v := make([]float64, len(ms))
	for i, m := range ms {
		v[i] = float64(m.elapsed)
	}
	sorted := slices.Sorted(slices.Values(v))
	worst := sorted[len(v)-1]
	excess := worst - sorted[(len(v)-1)/2]
	return Straggler{Rank: slices.Index(v, worst), Excess: excess / 1e3 / float64(ops)}
}

// A Step is one timed step of a rank: an iteration or, on a device, its launch, or the wait until
// everything is done.
type Step struct {
	Rank      int     `json:"rank"`
	Iteration int     `json:"iteration"` // -1: the wait
	Time      float64 `json:"time_us"`
}

func (s Step) String() string {
	what := "the wait"
	if s.Iteration >= 0 {
		what = fmt.Sprintf("iteration %d", s.Iteration)
	}
	return fmt.Sprintf("%.1f us in %s of rank %d", s.Time, what, s.Rank)
}

// slowest returns the n steps of all ranks that took longest. With graphs elapsed and issued are
// for one launch; launches is how many there were.
func slowest(ms []measure, n, launches int) []Step {
	if n <= 0 {
		return nil
	}
	var all []Step
	for rank, m := range ms {
		for i, d := range m.samples {
			all = append(all, Step{rank, i, float64(d) / 1e3})
		}
		if m.issued > 0 {
			all = append(all, Step{rank, -1, float64(m.elapsed-m.issued) * float64(launches) / 1e3})
		}
	}
	slices.SortStableFunc(all, func(a, b Step) int { return cmp.Compare(b.Time, a.Time) })
	return slices.Clip(all[:min(n, len(all))])
}

// IterStats are statistics of iterations, in microseconds. The time of an iteration is that of
// the slowest rank.
type IterStats struct {
	Skipped int       `json:"skipped_iterations"`
	Min     float64   `json:"min_us"`
	Max     float64   `json:"max_us"`
	Mean    float64   `json:"avg_us"`
	P50     float64   `json:"p50_us"`
	P95     float64   `json:"p95_us"`
	P99     float64   `json:"p99_us"`
	Stdev   float64   `json:"stdev_us"` // of the population
	CV      float64   `json:"cv_pct"`   // Stdev in percent of Mean
	Times   []float64 `json:"times_us"` // all of them

	byProcess [][]float64 // the slowest rank of each process, if there are several processes
}

// iterStats reduces the ranks' samples. process is each rank's process.
func iterStats(ms []measure, process []int, skip int) *IterStats {
	if len(ms) == 0 || len(ms[0].samples) == 0 {
		return nil
	}
	n := len(ms[0].samples)
	s := &IterStats{Skipped: min(skip, n-1), Times: make([]float64, n)}
	if last := slices.Max(process); last > 0 {
		s.byProcess = make([][]float64, last+1)
	}
	for r, m := range ms {
		for i, d := range m.samples[:min(n, len(m.samples))] {
			us := float64(d) / 1e3
			s.Times[i] = max(s.Times[i], us)
			if s.byProcess == nil {
				continue
			}
			row := &s.byProcess[process[r]]
			if *row == nil {
				*row = make([]float64, n)
			}
			(*row)[i] = max((*row)[i], us)
		}
	}
	s.summarize()
	return s
}

func (s *IterStats) summarize() {
	v := slices.Sorted(slices.Values(s.Times[s.Skipped:]))
	n := len(v)
	s.Min, s.Max, s.P50 = v[0], v[n-1], v[n/2]
	s.P95, s.P99 = nearestRank(v, 95), nearestRank(v, 99)
	s.Mean, s.Stdev = stat.Moments(v)
	if s.Mean > 0 {
		s.CV = 100 * s.Stdev / s.Mean
	}
}

// nearestRank returns a percentile of sorted values, as nccl-tests computes it.
func nearestRank(v []float64, percent int) float64 {
	n := len(v)
	return v[min(n-1, (n*percent+99)/100-1)]
}
