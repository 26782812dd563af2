package history

import (
	"math"

	"github.com/assay-hpc/assay/harness/certificate"
)

// Compare returns what drifted from one certificate to another one, for the worse and
// for the better, in the order of the second: figures of the same check, thing (by
// UUID or GUID before name), peer and quantity whose change is larger than the
// tolerance, which is relative, and than both figures' spreads together. What only
// one of them has is no drift. They may be of different suites.
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

// anySuite is the key of the same figure, whichever suite has measured it.
func (k key) anySuite() key {
	k.suite = ""
	return k
}
