package predict

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/stat"
)

// A Comparison compares a published table with the model.
type Comparison struct {
	Key   string // of the table, "" for one made of measured rows
	Table *platform.Table
	Rows  []Compared
}

// A Compared is one row of a table.
type Compared struct {
	Published time.Duration
	Row       BytesPerSec // bus bandwidth as published
	Prediction
}

// Error is how much longer the prediction is than the measurement: 0.1 is 10 %.
func (c Compared) Error() float64 { return c.Time.Seconds()/c.Published.Seconds() - 1 }

// Median is the median of the absolute errors.
func (c Comparison) Median() float64 {
	return stat.Median(c.errors())
}

// Max is the largest absolute error.
func (c Comparison) Max() float64 { return slices.Max(c.errors()) }

// errors returns the absolute errors.
func (c Comparison) errors() []float64 {
	var e []float64
	for _, r := range c.Rows {
		e = append(e, math.Abs(r.Error()))
	}
	return e
}

// Compare predicts every row of a table.
func Compare(db *platform.DB, t *platform.Table, fit Fitted) (Comparison, error) {
	return compare(db, t, fit, nil)
}

// CompareTables predicts every row of the tables with some keys.
func CompareTables(db *platform.DB, keys []string, fit Fitted) (list []Comparison, err error) {
	for _, key := range keys {
		t, err := db.Table(key)
		if err != nil {
			return nil, exit.Usagef("--table: %w", err)
		}
		c, err := Compare(db, t, fit)
		if err != nil {
			return nil, err
		}
		c.Key = key
		list = append(list, c)
	}
	return list, nil
}

func compare(db *platform.DB, t *platform.Table, fit Fitted, m memo) (Comparison, error) {
	out := Comparison{Table: t}
	c, ok := CollectiveOf(t.Collective)
	if !ok {
		return out, fmt.Errorf("%s: there is no model of %q", t.Title, t.Collective)
	}
	algorithm := cmp.Or(map[string]string{"ring": "Ring"}[t.Algorithm], t.Algorithm)
	p, err := newPredictor(db, Job{Platform: t.Platform, GPUs: t.GPUs, Nodes: t.Nodes, Collective: c, Algorithm: algorithm, PerProcess: t.PerProcess}, fit, m)
	if err != nil {
		return out, err
	}
	for _, r := range t.Rows {
		pred, err := p.Predict(r.Bytes)
		if err != nil {
			return out, fmt.Errorf("%s, %d bytes: %w", t.Title, r.Bytes, err)
		}
		row := Compared{Prediction: pred, Row: BytesPerSec(r.BusBW) * GBps}
		row.Published = seconds(r.Microseconds * 1e-6)
		if r.Microseconds == 0 { // only busbw was published
			row.Published = seconds(float64(r.Bytes) * c.BusFactor(t.GPUs) / float64(row.Row))
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// modelled are the collectives that have a model.
var modelled = []op.Collective{op.AllReduce, op.AllGather, op.ReduceScatter, op.Broadcast, op.Reduce, op.AllToAll, op.Gather, op.Scatter, op.SendRecv}

// CollectiveOf finds a collective that can be predicted by nccl-tests' name
// for it: "all_reduce".
func CollectiveOf(name string) (op.Collective, bool) {
	c, ok := op.OfTest(name)
	return c, ok && slices.Contains(modelled, c)
}

// Collectives returns the names that CollectiveOf knows.
func Collectives() []string {
	var names []string
	for _, c := range modelled {
		names = append(names, c.Test())
	}
	slices.Sort(names)
	return names
}

// CompareAll compares all tables of the database, in the order of their keys.
func CompareAll(db *platform.DB, fit Fitted) ([]Comparison, error) {
	var out []Comparison
	for _, key := range slices.Sorted(maps.Keys(db.Tables)) {
		c, err := Compare(db, db.Tables[key], fit)
		if err != nil {
			return nil, err
		}
		c.Key = key
		out = append(out, c)
	}
	return out, nil
}

// HeldOut compares the measured rows of the platforms that no fit has used: all except those
// from the seeds, from which the tables are made. Tables for which the model lacks figures are
// skipped, with the reason.
func HeldOut(db *platform.DB, fit Fitted) (held []Comparison, skipped []error) {
	for _, t := range db.MeasuredTables() {
		if strings.HasPrefix(t.Source, "seed") {
			continue
		}
		c, err := Compare(db, t, fit)
		if err != nil {
			skipped = append(skipped, fmt.Errorf("%s, %d GPUs: %w", t.Title, t.GPUs, err))
			continue
		}
		held = append(held, c)
	}
	return held, skipped
}

// unfitted is where fitTo starts: 1 µs of overhead in addition to NCCL's figures, and a 400 Gb/s NIC for each GPU of a rack.
var unfitted = Fitted{Step: time.Microsecond, RackUplink: 72 * 50 * GBps}

// fitTo finds the constants with the least mean absolute (logarithmic) error of the tables.
// Each table has the same weight, however many rows it has. A constant that no table depends
// on stays as it is in unfitted. It is a pattern search: each constant in turn is multiplied
// and divided by a factor while that helps, then the factor is made smaller.
func fitTo(db *platform.DB, tables []*platform.Table, m memo) (Fitted, error) {
	cost := func(f Fitted) (float64, error) {
		var sum float64
		for _, t := range tables {
			c, err := compare(db, t, f, m)
			if err != nil {
				return 0, err
			}
			var rows float64
			for _, r := range c.Rows {
				rows += math.Abs(math.Log1p(r.Error()))
			}
			sum += rows / float64(len(c.Rows))
		}
		return sum, nil
	}
	best := unfitted
	least, err := cost(best)
	if err != nil {
		return best, err
	}
	for factor := 2.0; factor > 1.005; {
		improved := false
		for i := range numFitted {
			for _, by := range []float64{factor, 1 / factor} {
				f := best.scale(i, by)
				c, err := cost(f)
				if err != nil {
					return best, err
				}
				if c < least-1e-9 {
					best, least, improved = f, c, true
					break
				}
			}
		}
		if !improved {
			factor = math.Sqrt(factor)
		}
	}
	return best, nil
}

const numFitted = 2

// scale multiplies the i-th constant.
func (f Fitted) scale(i int, by float64) Fitted {
	switch i {
	case 0:
		f.Step = time.Duration(float64(f.Step) * by)
	case 1:
		f.RackUplink *= BytesPerSec(by)
	}
	return f
}

// LeaveOneOut predicts each table with a fit to all other tables.
func LeaveOneOut(db *platform.DB) ([]Comparison, error) {
	var out []Comparison
	m := memo{}
	keys := slices.Sorted(maps.Keys(db.Tables))
	for _, left := range keys {
		var others []*platform.Table
		for _, key := range keys {
			if key != left {
				others = append(others, db.Tables[key])
			}
		}
		fit, err := fitTo(db, others, m)
		if err != nil {
			return nil, err
		}
		c, err := compare(db, db.Tables[left], fit, m)
		if err != nil {
			return nil, err
		}
		c.Key = left
		out = append(out, c)
	}
	return out, nil
}
