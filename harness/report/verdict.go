package report

import (
	"fmt"
	"time"

	"github.com/assay-hpc/assay/harness/certificate"
)

// marks has, for each verdict, its sign and its colour on a terminal.
var marks = map[certificate.Verdict]struct{ sign, color string }{
	certificate.Pass: {"✓", "32"}, certificate.Warn: {"⚠", "33"}, certificate.Fail: {"✗", "31"}, certificate.Skip: {"–", "2"}, certificate.Error: {"!", "31"},
}

// words say a certificate's verdict, outcomes a check's.
var (
	words = map[certificate.Verdict]string{
		certificate.Pass: "PASS", certificate.Fail: "FAIL", certificate.Error: "ERROR", certificate.Skip: "NOTHING SHOWN",
	}
	outcomes = map[certificate.Verdict]string{
		certificate.Pass: "passed", certificate.Warn: "warned", certificate.Fail: "failed", certificate.Error: "not carried out", certificate.Skip: "skipped",
	}
)

// worthy reports whether a verdict is what people must hear of first.
func worthy(v certificate.Verdict) bool {
	return v == certificate.Fail || v == certificate.Error || v == certificate.Warn
}

// faulty returns the results that failed, could not be carried out, or warn, in
// this order.
func faulty(results []certificate.Result) (out []*certificate.Result) {
	for _, v := range certificate.Verdicts() {
		for i := range results {
			if worthy(v) && results[i].Verdict == v {
				out = append(out, &results[i])
			}
		}
	}
	return out
}

// counts says how many checks have each verdict, and how long all took.
func counts(p *certificate.Predicate) string {
	count := certificate.Count(p.Results)
	warned := ""
	if n := count[certificate.Warn]; n > 0 {
		warned = fmt.Sprintf(" %d warned,", n)
	}
	return fmt.Sprintf("%d passed,%s %d failed, %d skipped, %d could not be carried out, in %v",
		count[certificate.Pass], warned, count[certificate.Fail], count[certificate.Skip], count[certificate.Error],
		p.Finished.Sub(p.Started).Round(10*time.Millisecond))
}
