package perf

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/assay-hpc/assay/internal/stat"
)

// A VersusResult is the result of a comparison of engines.
type VersusResult struct {
	Rows   []VersusRow   `json:"rows"` // at most 65,536 of them
	Ratios []VersusRatio `json:"ratios"`
}

// A VersusRow compares the engines in one operation, launch and kind of memory, the same for all
// of them, measured alternately.
type VersusRow struct {
	Bytes      int64        `json:"bytes"`
	Count      int64        `json:"count"`
	Type       string       `json:"type"`
	Redop      string       `json:"redop"`
	Root       int          `json:"root"` // -1: no root
	InPlace    bool         `json:"in_place"`
	Graph      bool         `json:"graph"`
	Memory     string       `json:"memory"`     // "plain", or a mode of an engine: "symmetric"
	Iterations int          `json:"iterations"` // of a repetition
	Engines    []EngineTime `json:"engines"`    // ours first
}

// An EngineTime is one engine's part of a VersusRow. Time is the median of the repetitions, per
// operation.
type EngineTime struct {
	Engine    string    `json:"engine"`
	Algorithm string    `json:"algorithm,omitempty"`
	Time      float64   `json:"time_us"`
	Times     []float64 `json:"times_us"` // of each repetition
	AlgBW     float64   `json:"algbw_gbs"`
	BusBW     float64   `json:"busbw_gbs"`
	Wrong     int64     `json:"wrong"`           // elements, over all ranks; -1: not verified
	Ratio     float64   `json:"ratio,omitempty"` // its time divided by ours: above 1 we are faster
}

// A VersusRatio summarizes the ratios to one engine, with or without graphs.
type VersusRatio struct {
	Engine string  `json:"engine"`
	Graph  bool    `json:"graph"`
	Worst  float64 `json:"worst"`
	Bytes  int64   `json:"worst_bytes"` // size of the worst ratio
	Mean   float64 `json:"mean"`        // geometric
	Rows   int     `json:"rows"`
}

func (r VersusRatio) String() string {
	return fmt.Sprintf("worst %.2f at %d bytes, geometric mean %.2f (%d rows)", r.Worst, r.Bytes, r.Mean, r.Rows)
}

// launchName says how operations are launched.
func launchName(graph bool) string {
	if graph {
		return "graph"
	}
	return "eager"
}

// placeName says where results are put.
func placeName(inPlace bool) string {
	if inPlace {
		return "in"
	}
	return "out"
}

// engineTime combines what all ranks measured of one engine.
func (r *reporter) engineTime(v volume, ms []measure, ops int) EngineTime {
	s := EngineTime{Algorithm: ms[0].chosen}
	ranks := make([]float64, len(ms))
	for i := range ms[0].samples {
		for j, m := range ms {
			ranks[j] = float64(m.samples[i]) / 1e3 / float64(ops)
		}
		s.Times = append(s.Times, r.cfg.Average.of(ranks))
	}
	for _, m := range ms {
		s.Wrong += m.wrong
	}
	if ms[0].wrong < 0 {
		s.Wrong = -1
	}
	s.Time = stat.Median(s.Times)
	s.AlgBW, s.BusBW = r.c.bandwidth(v, s.Time, r.n)
	s.AlgBW, s.BusBW = finite(s.AlgBW), finite(s.BusBW)
	return s
}

// versus records the rows of one operation, and passes them to the sinks.
func (r *reporter) versus(rows []VersusRow) error {
	r.bar.clear()
	for i := range rows {
		row := &rows[i]
		row.Engines[0].Engine = r.world.Engine
		for j := range row.Engines[1:] {
			s := &row.Engines[j+1]
			s.Engine = r.world.Against[j].Engine
			s.Ratio = finite(s.Time / row.Engines[0].Time)
		}
	}
	if r.cfg.Versus == Best {
		rows = best(rows)
	}
	if r.res.Versus == nil {
		r.res.Versus = &VersusResult{}
	}
	for i := range rows {
		row := &rows[i]
		for _, s := range row.Engines {
			if s.Wrong > 0 {
				r.res.OutOfBounds++
			}
		}
		r.rows++
		if len(r.res.Versus.Rows) < maxRows {
			r.res.Versus.Rows = append(r.res.Versus.Rows, *row)
		}
		if err := r.each(func(s sink) error { return s.versus(r, row) }); err != nil {
			return err
		}
	}
	return nil
}

// best gives each engine the kind of memory on which it was fastest, separately with and without
// graphs. The memory of such a row is that of the fastest rival. Wrong elements on the other kinds are
// still counted.
func best(rows []VersusRow) []VersusRow {
	var out []VersusRow
	for _, graph := range []bool{false, true} {
		alike := slices.DeleteFunc(slices.Clone(rows), func(r VersusRow) bool { return r.Graph != graph })
		if len(alike) == 0 {
			continue
		}
		kept := slices.MinFunc(alike, func(a, b VersusRow) int { return cmp.Compare(a.rival(), b.rival()) })
		kept.Engines = slices.Clone(kept.Engines)
		for j := range kept.Engines {
			s := &kept.Engines[j]
			wrong, checked := int64(0), s.Wrong >= 0
			for _, row := range alike {
				wrong += max(0, row.Engines[j].Wrong)
				if row.Engines[j].Time < s.Time {
					*s = row.Engines[j]
				}
			}
			if checked {
				s.Wrong = wrong
			}
		}
		for j := range kept.Engines[1:] {
			s := &kept.Engines[j+1]
			s.Ratio = finite(s.Time / kept.Engines[0].Time)
		}
		out = append(out, kept)
	}
	return out
}

// rival is the time of the fastest engine except ours.
func (row *VersusRow) rival() float64 {
	t := math.Inf(1)
	for _, s := range row.Engines[1:] {
		t = min(t, s.Time)
	}
	return t
}

// settle summarizes the rows, except those in which nothing is moved.
func (v *VersusResult) settle() {
	for _, graph := range []bool{false, true} {
		for j := range v.Rows[0].Engines[1:] {
			sum := VersusRatio{Graph: graph, Worst: math.Inf(1)}
			logs := 0.0
			for _, row := range v.Rows {
				s := row.Engines[j+1]
				if row.Graph != graph || row.Bytes == 0 {
					continue
				}
				sum.Engine = s.Engine
				sum.Rows++
				logs += math.Log(s.Ratio)
				if s.Ratio < sum.Worst {
					sum.Worst, sum.Bytes = s.Ratio, row.Bytes
				}
			}
			if sum.Rows > 0 {
				sum.Mean = math.Exp(logs / float64(sum.Rows))
				v.Ratios = append(v.Ratios, sum)
			}
		}
	}
}
