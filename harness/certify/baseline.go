package certify

import (
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// A Baseline is an earlier certificate whose figures are compared with.
type Baseline struct {
	Earlier   *certificate.Statement // nil: nothing is compared
	Tolerance float64                // the share up to which changes are ignored
	Fail      bool                   // regressions are failures, not warnings
}

// baselineID is the id of the baseline check, which is in no suite.
const baselineID = certificate.BaselineID

// result checks all measured figures; it returns nil if there is nothing to compare.
func (o *Baseline) result(p certificate.Predicate) *result.Result {
	if o.Earlier == nil {
		return nil
	}
	r := &result.Result{ID: baselineID, Title: "no figure is worse than it was", Verdict: result.Pass}
	was := o.Earlier.Predicate.Node
	if was == nil || p.Node == nil || certificate.NodeDigest(was.Identity) != certificate.NodeDigest(p.Node.Identity) {
		r.Verdict, r.Reason = result.Skip, "the baseline is not of this machine"
		return r
	}
	bad := result.Warn
	if o.Fail {
		bad = result.Fail
	}
	var worse []string
	better := 0
	for _, d := range history.Compare(o.Earlier, &certificate.Statement{Predicate: p}, o.Tolerance) {
		if d.Better {
			better++
			continue
		}
		worse = append(worse, d.String())
		r.Objects = append(r.Objects, result.Object{
			Name: strings.Trim(d.Check+" "+d.Object, " "), Peer: d.Peer, ID: d.ID, Quantity: d.Quantity, Verdict: bad, Reason: d.String(),
			Measured: &result.Measurement{Value: d.After, Unit: d.Unit, Expected: d.Before, Source: "the baseline", Ratio: ratio(d.After, d.Before)},
		})
	}
	if len(worse) == 0 {
		r.Reason = fmt.Sprintf("against %s; %d better", o.Earlier.Predicate.Finished.Format("2006-01-02 15:04 UTC"), better)
		return r
	}
	r.Verdict, r.Reason = bad, worse[0]
	if n := len(worse) - 1; n > 0 {
		r.Reason += fmt.Sprintf("; and %d more", n)
	}
	r.Remedy = "see what else changed since (harness history), and repeat before anything is replaced"
	return r
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
