package report

import (
	"strings"

	"github.com/assay-hpc/assay/internal/result"
)

// A headline is one of the figures by which people know a machine.
type headline struct {
	Label   string
	Verdict result.Verdict
	measurement
	of *result.Measurement
}

// headlines defines them: each is the measurement of the check with this last part of its ID, or
// the worst figure of a quantity over all objects.
var headlines = []struct{ label, check, quantity string }{
	{"all_reduce bus bandwidth", "all_reduce", ""},
	{"NVLink write", "peer_write_ce", ""},
	{"NVLink read", "peer_read_ce", ""},
	{"GPU memory copy", "local_ce", ""},
	{"PCIe to the GPU", "host_to_device", ""},
	{"PCIe from the GPU", "device_to_host", ""},
	{"RDMA between ports", "mesh", ""},
	{"bf16 products", "", "bf16 products, wgmma"},
	{"bf16 products (mma)", "", "bf16 products, mma"},
	{"highest temperature", "", "highest temperature"},
}

// headlinesOf returns the headlines for which a certificate has a figure.
func headlinesOf(results []result.Result) (all []headline) {
	for _, h := range headlines {
		var worst *result.Measurement
		verdict := result.Skip
		take := func(check, quantity string, m *result.Measurement, v result.Verdict) {
			if m == nil || v == result.Skip || v == result.Error {
				return
			}
			lower := result.BetterOf(check, quantity, m.Unit, m.LimitKind()) == result.Lower
			switch known := m.Expected != 0; {
			case worst == nil, known && worst.Expected == 0: // those without an expected value measure something else, such as host memory
				worst, verdict = m, result.Skip
			case !known && worst.Expected != 0:
				return
			case lower == (m.Value > worst.Value):
				worst = m
			}
			verdict = result.Worst(verdict, v)
		}
		for _, r := range results {
			if h.check != "" && (r.ID == h.check || strings.HasSuffix(r.ID, "/"+h.check)) && !strings.HasSuffix(r.ID, "host/"+h.check) { // a figure of host memory is not a headline
				take(r.ID, "", r.Measured, r.Verdict)
			}
			for _, o := range r.Objects {
				if h.quantity != "" && o.Quantity == h.quantity {
					take(r.ID, o.Quantity, o.Measured, o.Verdict)
				}
			}
		}
		if worst != nil {
			all = append(all, headline{h.label, verdict, measurementOf(worst), worst})
		}
	}
	return all
}

// bar draws a share of the expected value as a bar with width characters; 1 fills it.
func bar(share float64, width int) string {
	n := int(share*float64(width) + 0.5)
	n = min(max(n, 0), width)
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}
