package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/internal/result"
)

// marks contains the sign of each verdict and its colour on a terminal.
var marks = map[result.Verdict]struct{ sign, color string }{
	result.Pass: {"✓", "32"}, result.Warn: {"⚠", "33"}, result.Fail: {"✗", "31"}, result.Skip: {"–", "2"}, result.Error: {"!", "31"},
}

// verdictNames are the verdicts of a certificate, outcomes those of a check.
var (
	verdictNames = map[result.Verdict]string{
		result.Pass: "PASS", result.Fail: "FAIL", result.Error: "ERROR", result.Skip: "NOTHING SHOWN",
	}
	outcomes = map[result.Verdict]string{
		result.Pass: "passed", result.Warn: "warned", result.Fail: "failed", result.Error: "not run", result.Skip: "skipped",
	}
)

// worthy reports whether a verdict must be shown first.
func worthy(v result.Verdict) bool {
	return v == result.Fail || v == result.Error || v == result.Warn
}

// A fault is a result with a problem, and the checks with exactly the same result: if a GPU does
// not answer, the fortieth check adds nothing new.
type fault struct {
	*result.Result
	also []string // IDs
}

// name returns the check's ID, and the number of other checks.
func (f *fault) name() string {
	if n := len(f.also); n > 0 {
		return fmt.Sprintf("%s and %d more", f.ID, n)
	}
	return f.ID
}

// faulty returns the results that failed, could not run, or warn, in this order.
func faulty(results []result.Result) (out []*fault) {
	for _, v := range result.Verdicts() {
		for i := range results {
			r := &results[i]
			if !worthy(v) || r.Verdict != v {
				continue
			}
			same := slices.IndexFunc(out, func(f *fault) bool {
				return f.Verdict == v && f.Reason == r.Reason && f.Wanted == r.Wanted && f.Remedy == r.Remedy && f.Output == "" && r.Output == ""
			})
			if same >= 0 {
				out[same].also = append(out[same].also, r.ID)
				continue
			}
			out = append(out, &fault{Result: r})
		}
	}
	return out
}

// counts formats the number of checks by verdict, and the total duration.
func counts(count map[result.Verdict]int, took time.Duration) string {
	warned := ""
	if n := count[result.Warn]; n > 0 {
		warned = fmt.Sprintf(" %d warned,", n)
	}
	return fmt.Sprintf("%d passed,%s %d failed, %d skipped, %d could not run, in %v",
		count[result.Pass], warned, count[result.Fail], count[result.Skip], count[result.Error], took.Round(10*time.Millisecond))
}
