package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/certificate"
)

// merged is the certificate of all machines: a result for each, of what it did on
// its own, and those of what they did together, which are rank 0's. Where a
// machine's certificate did not come, that is its result.
func (f *fabric) merged(all []*certificate.Statement, lost error, together func(id string) bool) *certificate.Statement {
	first := all[0]
	p := certificate.Predicate{
		Suite: first.Predicate.Suite, Started: first.Predicate.Started, Finished: first.Predicate.Finished,
		Harness: first.Predicate.Harness, Environment: first.Predicate.Environment,
	}
	for rank, st := range all {
		p.Results = append(p.Results, f.machine(rank, st, lost, together))
	}
	for _, r := range first.Predicate.Results {
		if together(r.ID) {
			p.Results = append(p.Results, r)
		}
	}
	out := certificate.New(p)
	for _, st := range all {
		if st == nil {
			continue
		}
		for _, s := range st.Subject {
			if !slices.ContainsFunc(out.Subject, func(o certificate.Subject) bool { return o.Name == s.Name && o.Digest["sha256"] == s.Digest["sha256"] }) {
				out.Subject = append(out.Subject, s)
			}
		}
	}
	return out
}

// machine is the result of one machine's own checks.
func (f *fabric) machine(rank int, st *certificate.Statement, lost error, together func(id string) bool) certificate.Result {
	r := certificate.Result{ID: "node/" + strings.ReplaceAll(f.names[rank], "/", "_"), Title: f.names[rank] + " is fit on its own"}
	if st == nil {
		r.Verdict, r.Reason = certificate.Error, "no certificate came of it"
		if lost != nil {
			r.Reason += ": " + lost.Error()
		}
		return r
	}
	var own []certificate.Result
	for _, one := range st.Predicate.Results {
		if !together(one.ID) {
			own = append(own, one)
			r.Seconds += one.Seconds
		}
	}
	r.Verdict = certificate.Summary(own)
	count := certificate.Count(own)
	for _, v := range []certificate.Verdict{certificate.Fail, certificate.Error, certificate.Warn} {
		for _, one := range own {
			if one.Verdict != v {
				continue
			}
			r.Objects = append(r.Objects, certificate.Object{Name: one.ID, Verdict: v, Reason: one.Reason, Measured: one.Measured})
			if r.Reason == "" && v != certificate.Warn {
				r.Reason, r.Remedy = one.ID+": "+one.Reason, one.Remedy
			}
		}
	}
	switch n := len(r.Objects) - count[certificate.Warn]; {
	case r.Verdict == certificate.Pass && count[certificate.Warn] > 0:
		r.Verdict, r.Reason = certificate.Warn, fmt.Sprintf("%s: %s", r.Objects[0].Name, r.Objects[0].Reason)
	case r.Verdict == certificate.Skip:
		r.Reason = "all of its own checks were skipped"
	case n > 1:
		r.Reason += fmt.Sprintf("; and %d more", n-1)
	}
	return r
}
