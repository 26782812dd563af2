package judge

import (
	"fmt"
	"testing"

	"github.com/assay-hpc/assay/internal/result"
)

func TestJudge(t *testing.T) {
	say := func(what string) func(float64) string {
		return func(v float64) string { return fmt.Sprintf("%s%g", what, v) }
	}
	w := Words{Value: say(""), Reference: say("the rate "), Usual: say("the median ")}
	higher := Limits{Pass: 0.9, Fail: 0.8, MedianWarn: 0.9, MedianFail: 0.5}
	lower := Limits{Pass: 0.8, Fail: 0.5, MedianWarn: 1.5, MedianFail: 3, Lower: true}
	for _, tt := range []struct {
		l                       Limits
		value, reference, usual float64
		want                    result.Verdict
		why                     string
	}{
		{higher, 95, 100, 0, result.Pass, ""},
		{higher, 85, 100, 0, result.Warn, "85 is 85 % of the rate 100; 90 % or more is expected"},
		{higher, 70, 100, 0, result.Fail, "70 is 70 % of the rate 100; 90 % or more is expected"},
		{higher, 0, 100, 0, result.Fail, "0 is 0 % of the rate 100; 90 % or more is expected"},
		{higher, 95, 100, 200, result.Fail, "95 is 0.47 times the median 200"},
		{higher, 85, 100, 100, result.Warn, "85 is 85 % of the rate 100; 90 % or more is expected"},
		{higher, 1000, 100, 100, result.Pass, ""},
		{higher, 5, 0, 0, result.Pass, ""},
		{lower, 1, 2, 2, result.Pass, ""}, // less is better than it should be
		{lower, 2.2, 2, 2, result.Pass, ""},
		{lower, 3, 2, 0, result.Warn, "3 is 1.50 times the rate 2; 1.25 or less is expected"},
		{lower, 5, 2, 0, result.Fail, "5 is 2.50 times the rate 2; 1.25 or less is expected"},
		{lower, 4, 0, 2, result.Warn, "4 is 2.00 times the median 2"},
		{lower, 8, 0, 2, result.Fail, "8 is 4.00 times the median 2"},
		{lower, 1, 0, 2, result.Pass, ""},
	} {
		if got, why := tt.l.Judge(tt.value, tt.reference, tt.usual, w); got != tt.want || why != tt.why {
			t.Errorf("%+v: %g of %g, usually %g: %s, %q; want %s, %q", tt.l, tt.value, tt.reference, tt.usual, got, why, tt.want, tt.why)
		}
	}
}
