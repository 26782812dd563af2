package node

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// scaled measures one operation of the largest size over groups of 2, 4, 8, … machines, all groups
// at once, and then over all machines. The last group of a number may be smaller: it does not count.
func (c *Config) scaled(ctx context.Context, e *suite.Entry, p collParams, op string, ranks int) result.Result {
	p.Min = p.Max
	curve := result.Curve{Name: op + " over machines", X: "machines", Y: "GB/s"}
	out := result.Passed("")
	out.Remedy = "see harness hunt --tool coll for who is slow; where each machine is fast and all together are not, look at the switches between them"
	var shares []string
	for machines, all := 2, false; !all; machines *= 2 {
		machines = min(machines, c.Job.Size())
		p.Split = fmt.Sprintf("DIV %d", machines)
		d, bad := report[perf.Document](ctx, c.Job.Run, p.command(op, ranks)...)
		switch {
		case bad != nil:
			return *bad
		case d.Error != "" || len(d.Rows) == 0:
			return result.Errored("over %d machines: %s", machines, cmp.Or(d.Error, "nothing was measured"))
		case d.Bad > 0:
			return result.Failed("over %d machines %d results were wrong%s", machines, d.Bad, wrongOn(d)).
				WithRemedy("do not use these machines: run harness diag -r 3 to find out which GPU or link it is")
		}
		got := d.Ranks / ranks
		all = got < machines || got == c.Job.Size() // some may be lost
		if n := len(curve.Points); n > 0 && float64(got) <= curve.Points[n-1].X {
			break // machines were lost, and those that are left were measured together already
		}
		machines = got
		last := d.Rows[len(d.Rows)-1]
		m := &result.Measurement{Value: last.OutOfPlace.BusBW, Unit: "GB/s"}
		o := result.Object{Name: words.Count(machines, "machine"), Quantity: "bus bandwidth", Verdict: result.Pass, Measured: m}
		c.judgeBusBW(e, &o, op, machines, machines*ranks, last.Bytes, p.Device == "gpu" && len(p.Variables) == 0)
		if o.Verdict != result.Pass && out.Verdict == result.Pass {
			out.Verdict, out.Reason = o.Verdict, o.Name+": "+o.Reason
		}
		out.Objects = append(out.Objects, o)
		curve.Points = append(curve.Points, result.Point{X: float64(machines), Y: m.Value})
		shares = append(shares, fmt.Sprintf("%d: %.4g", machines, m.Value))
	}
	out.Curves = []result.Curve{curve}
	if out.Verdict == result.Pass {
		out.Reason, out.Remedy = fmt.Sprintf("GB/s over machines %s; every result verified", strings.Join(shares, ", ")), ""
	}
	return out
}
