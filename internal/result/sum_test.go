package result

import (
	"fmt"
	"strings"
	"testing"
)

// TestSum: what several objects come to, in verdict, reason, measurement and, where all is
// well, values.
func TestSum(t *testing.T) {
	gpu := func(i int, v Verdict, reason string, m *Measurement) Object {
		return Object{Name: fmt.Sprintf("GPU %d", i), Verdict: v, Reason: reason, Measured: m}
	}
	errors := func(v float64) *Measurement {
		return &Measurement{Value: v, Unit: "errors", Limit: &Limit{Kind: AtMost, Source: "DCGM"}}
	}
	margin := func(v float64) *Measurement {
		return &Measurement{Value: v, Unit: "°C", Limit: &Limit{Kind: AtLeast, Source: "NVML"}}
	}
	for _, tt := range []struct {
		check   string
		objects []Object
		verdict Verdict
		reason  string
		speaks  float64
	}{
		{"gpu/ecc/volatile", []Object{gpu(0, Pass, "", errors(0)), gpu(1, Fail, "3 errors", errors(3))}, Fail, "GPU 1: 3 errors", 3},
		{"gpu/temperature/margin", []Object{gpu(0, Pass, "", margin(40)), gpu(1, Pass, "", margin(48))}, Pass, "40 to 48 °C", 40},
		{"gpu/ecc/volatile", []Object{gpu(0, Pass, "", errors(0)), gpu(1, Pass, "", errors(0))}, Pass, "0 errors, all 2", 0},
		{"gpu/mig", []Object{gpu(0, Pass, "off", nil), gpu(1, Pass, "off", nil)}, Pass, "off, all 2", -1},
		{"gpu/mig", []Object{gpu(0, Pass, "off", nil), gpu(1, Pass, "on", nil)}, Pass, "GPU 0: off; and 1 more", -1},
		{"gpu/persistence", []Object{gpu(0, Warn, "it is off", nil), gpu(1, Warn, "it is off", nil)}, Warn, "GPU 0, GPU 1: it is off", -1},
		{"gpu/xid", []Object{gpu(0, Fail, "Xid 79", nil), gpu(0, Fail, "Xid 94", nil)}, Fail, "GPU 0: Xid 79; and 1 more", -1},
		{"gpu/answers", []Object{gpu(0, Error, "lost", nil), gpu(1, Skip, "no", nil)}, Error, "GPU 0: lost", -1},
	} {
		got := Sum(Distinct(tt.objects))
		if got.Verdict == Pass {
			got.Reason = Values(tt.objects)
		}
		speaks := -1.0
		if m := Speaking(tt.check, tt.objects); m != nil {
			speaks = m.Value
		}
		if got.Verdict != tt.verdict || !strings.HasPrefix(got.Reason, tt.reason) || speaks != tt.speaks {
			t.Errorf("%s of %v: %s %q, %v speaks; want %s %q, %v", tt.check, tt.objects, got.Verdict, got.Reason, speaks, tt.verdict, tt.reason, tt.speaks)
		}
		got.ID = tt.check
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", tt.check, err)
		}
	}
}
