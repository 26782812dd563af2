package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/certificate"
	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/internal/exit"
)

// baselineOptions are the options for comparing figures with an earlier certificate's.
type baselineOptions struct {
	file      string
	tolerance float64 // %
	fail      bool
	earlier   *certificate.Statement // read by check
}

func (o *baselineOptions) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "baseline", Destination: &o.file, Usage: "compare with the machine's earlier certificate in `FILE`, and warn of regressions beyond spread and tolerance"},
		&cli.Float64Flag{Name: "tolerance", Value: 5, Destination: &o.tolerance, Usage: "with --baseline: ignore changes up to `PERCENT`"},
		&cli.BoolFlag{Name: "fail-on-drift", Destination: &o.fail, Usage: "with --baseline: count regressions as failures"},
	}
}

// check reads the earlier certificate.
func (o *baselineOptions) check() error {
	switch {
	case o.file == "" && o.fail:
		return exit.Usagef("--fail-on-drift goes with --baseline")
	case o.file == "":
		return nil
	case !(o.tolerance >= 0 && o.tolerance <= 100):
		return exit.Usagef("--tolerance %v is no percentage", o.tolerance)
	}
	d, err := readDocument(o.file, nil)
	if err != nil {
		return fmt.Errorf("--baseline: %w", err)
	}
	o.earlier = d.statement
	return nil
}

// baselineID is the id of the baseline check, which is in no suite.
const baselineID = "baseline"

// result checks all measured figures; it returns nil if there is nothing to compare.
func (o *baselineOptions) result(p certificate.Predicate) *result.Result {
	if o.earlier == nil {
		return nil
	}
	r := &result.Result{ID: baselineID, Title: "no figure is worse than it was", Verdict: result.Pass}
	was := o.earlier.Predicate.Node
	if was == nil || p.Node == nil || certificate.NodeDigest(was.Identity) != certificate.NodeDigest(p.Node.Identity) {
		r.Verdict, r.Reason = result.Skip, "the baseline is not of this machine"
		return r
	}
	bad := result.Warn
	if o.fail {
		bad = result.Fail
	}
	var worse []string
	better := 0
	for _, d := range history.Compare(o.earlier, &certificate.Statement{Predicate: p}, o.tolerance/100) {
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
		r.Reason = fmt.Sprintf("against %s; %d better", o.earlier.Predicate.Finished.Format("2006-01-02 15:04 UTC"), better)
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
