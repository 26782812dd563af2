// Package judge evaluates measurements: it defines the limits at which verdicts change, and finds
// the members at fault for the bad cells of a matrix.
package judge

import (
	"fmt"

	"github.com/assay-hpc/assay/internal/result"
)

// Limits define where verdicts change. Pass and Fail are fractions of the reference value: a value
// passes from Pass on, fails below Fail, and gets a warning in between. MedianWarn and MedianFail
// are fractions of the usual value among similar measurements: a value far behind the others is
// suspect regardless of the reference. With Lower, less is better: Pass and Fail are then compared
// with reference divided by value, and the other two are multiples of the usual value. A limit of 0
// is not checked.
type Limits struct {
	Pass       float64
	Fail       float64
	MedianWarn float64
	MedianFail float64
	Lower      bool
}

// Better reports whether a is a better value than b.
func (l Limits) Better(a, b float64) bool {
	if l.Lower {
		return a < b
	}
	return a > b
}

// Words describe values: "30.0 GB/s", "the port's rate", "the median of all, 48.0".
type Words struct{ Value, Reference, Usual func(float64) string }

// Judge compares a value with the reference and with the usual value, each 0 if not known, and
// returns the verdict and the reason if it is not a pass.
func (l Limits) Judge(value, reference, usual float64, w Words) (v result.Verdict, why string) {
	v = result.Pass
	note := func(got result.Verdict, format string, a ...any) {
		if result.Worst(v, got) != v {
			v, why = got, w.Value(value)+fmt.Sprintf(format, a...)
		}
	}
	part := value / reference
	if l.Lower {
		part = reference / value
	}
	if reference > 0 && part < l.Pass {
		got := result.Warn
		if part < l.Fail {
			got = result.Fail
		}
		if l.Lower {
			note(got, " is %.2f times %s; %.2f or less is expected", 1/part, w.Reference(reference), 1/l.Pass)
		} else {
			note(got, " is %.0f %% of %s; %.0f %% or more is expected", 100*part, w.Reference(reference), 100*l.Pass)
		}
	}
	if usual == 0 {
		return v, why
	}
	ratio := value / usual
	beyond := func(limit float64) bool { return limit > 0 && l.Better(limit, ratio) }
	switch {
	case beyond(l.MedianFail):
		note(result.Fail, " is %.2f times %s", ratio, w.Usual(usual))
	case beyond(l.MedianWarn):
		note(result.Warn, " is %.2f times %s", ratio, w.Usual(usual))
	}
	return v, why
}
