package report

import (
	"fmt"
	"time"

	"github.com/assay-hpc/assay/harness/result"
)

// marks has, for each verdict, its sign and its colour on a terminal.
var marks = map[result.Verdict]struct{ sign, color string }{
	result.Pass: {"✓", "32"}, result.Warn: {"⚠", "33"}, result.Fail: {"✗", "31"}, result.Skip: {"–", "2"}, result.Error: {"!", "31"},
}

// words say a certificate's verdict, outcomes a check's.
var (
	words = map[result.Verdict]string{
		result.Pass: "PASS", result.Fail: "FAIL", result.Error: "ERROR", result.Skip: "NOTHING SHOWN",
	}
	outcomes = map[result.Verdict]string{
		result.Pass: "passed", result.Warn: "warned", result.Fail: "failed", result.Error: "not carried out", result.Skip: "skipped",
	}
)

// worthy reports whether a verdict is what people must hear of first.
func worthy(v result.Verdict) bool {
	return v == result.Fail || v == result.Error || v == result.Warn
}

// faulty returns the results that failed, could not be carried out, or warn, in
// this order.
func faulty(results []result.Result) (out []*result.Result) {
	for _, v := range result.Verdicts() {
		for i := range results {
			if worthy(v) && results[i].Verdict == v {
				out = append(out, &results[i])
			}
		}
	}
	return out
}

// counts says how many checks have each verdict, and how long all took.
func counts(results []result.Result, took time.Duration) string {
	count := result.Count(results)
	warned := ""
	if n := count[result.Warn]; n > 0 {
		warned = fmt.Sprintf(" %d warned,", n)
	}
	return fmt.Sprintf("%d passed,%s %d failed, %d skipped, %d could not be carried out, in %v",
		count[result.Pass], warned, count[result.Fail], count[result.Skip], count[result.Error], took.Round(10*time.Millisecond))
}
