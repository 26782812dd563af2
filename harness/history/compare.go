package history

import (
	"math"

	"github.com/assay-hpc/assay/internal/certificate"
)

// Compare returns what drifted from one certificate to another, for the worse and for the better,
// in the order of the second. It compares figures of the same check, thing (by UUID or GUID
// before name), peer and quantity. A drift is a change that is larger than the relative tolerance
// and larger than both figures' spreads together. A figure that only one of them has is not a
// drift. The certificates may be of different suites.
func Compare(baseline, now *certificate.Statement, tolerance float64) []Drift {
	before := map[key]Value{}
	for _, f := range figures(baseline) {
		before[keyOf(f.thing).anySuite()] = Value{Value: f.measured.Value, spread: halfSpread(f.measured)}
	}
	from, to := baseline.Predicate.Finished, now.Predicate.Finished
	var out []Drift
	for _, f := range figures(now) {
		was, ok := before[keyOf(f.thing).anySuite()]
		if !ok {
			continue
		}
		is := f.measured.Value
		joint := math.Hypot(was.spread, halfSpread(f.measured))
		if d := math.Abs(is - was.Value); d == 0 || d <= tolerance*math.Abs(was.Value) || d <= joint {
			continue
		}
		out = append(out, Drift{
			Thing: f.thing, Kind: Compared, Before: was.Value, After: is, Change: relative(was.Value, is), Noise: joint,
			From: from, To: to, Better: improved(was.Value, is, better(f.thing, f.measured)),
		})
	}
	return out
}

// anySuite returns the key without the suite that measured the figure.
func (k key) anySuite() key {
	k.suite = ""
	return k
}

// relative returns a change relative to the value before; 0 if that is 0.
func relative(before, after float64) float64 {
	if before == 0 {
		return 0
	}
	return (after - before) / math.Abs(before)
}
