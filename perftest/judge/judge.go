// Package judge says what measurements are worth: the limits at which verdicts change, and who is to blame for the bad cells of a matrix.
package judge

import (
	"fmt"

	"github.com/assay-hpc/assay/harness/result"
)

// Limits are where verdicts change. Pass and Fail are fractions of what a value should
// be: from Pass on it passes, below Fail it fails, and between it gets a warning.
// MedianWarn and MedianFail are fractions of what is usual among its like: a value that
// is far behind the others is suspect whatever it should be. With Lower, less is better:
// then Pass and Fail are fractions that what it should be is of the value, and the other
// two are multiples. A limit of 0 is none.
type Limits struct {
	Pass       float64 `json:"pass,omitempty"`
	Fail       float64 `json:"fail,omitempty"`
	MedianWarn float64 `json:"median_warn"`
	MedianFail float64 `json:"median_fail"`
	Lower      bool    `json:"lower,omitempty"`
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

// Judge holds a value against what it should be and what is usual, each 0 where it is
// not known, and says why it does not pass.
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
