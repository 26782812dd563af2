package fabric

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/gather"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/result"
)

// inside is the largest total size in bytes at which the certificates of all machines are embedded
// in the cluster's certificate.
const inside = certificate.MaxSize / 2

// Merge creates the certificate of the cluster: one result for each machine's own checks, and the
// results of the checks that all did together. A machine without a certificate has a result that
// says so. The machines' certificates are embedded if all of them fit; else only their digests are.
func (f *Fabric) Merge(g *Gathered, together []result.Result) (*certificate.Statement, error) {
	first := g.Certificates[g.First]
	p := certificate.Predicate{
		Suite: first.Predicate.Suite, Started: first.Predicate.Started, Finished: first.Predicate.Finished,
		Harness: first.Predicate.Harness, Environment: first.Predicate.Environment, Selected: first.Predicate.Selected,
	}
	size := 0
	for rank, st := range g.Certificates {
		if st == nil && g.Missing[rank] == "" {
			continue // it is only in the summary
		}
		p.Results = append(p.Results, f.machine(rank, st, g.Missing[rank]))
		if st == nil {
			continue
		}
		doc, err := st.Marshal()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(rank), err)
		}
		sum := sha256.Sum256(doc)
		m := certificate.Machine{Name: f.Name(rank), SHA256: hex.EncodeToString(sum[:])}
		m.Certificate = st
		size += len(doc)
		p.Machines = append(p.Machines, m)
	}
	for i := range p.Machines {
		if size > inside {
			p.Machines[i].Certificate = nil
		}
	}
	if len(p.Machines)+len(g.Missing) < len(g.Certificates) {
		p.Results = append(p.Results, summarized(g.Summary)...)
	}
	p.Results = append(p.Results, together...)
	out := certificate.New(p)
	known := map[string]bool{}
	for _, st := range g.Certificates {
		if st == nil {
			continue
		}
		for _, s := range st.Subject {
			if key := s.Name + "@" + s.Digest["sha256"]; !known[key] {
				known[key] = true
				out.Subject = append(out.Subject, s)
			}
		}
	}
	return out, nil
}

// summarized returns the results from the summary, for use when it covers more machines than there
// are certificates.
func summarized(s *gather.Summary) (out []result.Result) {
	for _, id := range slices.Sorted(maps.Keys(s.Checks)) {
		c := s.Checks[id]
		n, verdicts := 0, []result.Verdict{}
		var said []string
		for _, v := range result.Verdicts() {
			if c.Verdicts[v] > 0 {
				n += c.Verdicts[v]
				verdicts = append(verdicts, v)
				said = append(said, fmt.Sprintf("%d %s", c.Verdicts[v], v))
			}
		}
		r := result.Result{ID: "all/" + id, Title: id + " on all machines", Verdict: result.Worst(verdicts...), Reason: strings.Join(said, ", ")}
		for _, w := range c.Worst {
			if w.Verdict != result.Pass && w.Verdict != result.Skip {
				r.Objects = append(r.Objects, result.Object{Name: strings.TrimSpace(w.Node + " " + w.Object), Verdict: w.Verdict, Reason: w.Reason})
			}
		}
		out = append(out, r)
	}
	return out
}

// machine is the result of one machine's own checks.
func (f *Fabric) machine(rank int, st *certificate.Statement, lost string) result.Result {
	r := result.Result{ID: "node/" + fileName(f.Name(rank)), Title: f.Name(rank) + " is fit on its own"}
	if st == nil {
		r.Verdict, r.Reason = result.Error, "no certificate was created: "+lost
		r.Remedy = "see whether the machine is up, and what the launcher and its kernel's log say of it"
		return r
	}
	own := st.Predicate.Results
	for _, one := range own {
		r.Seconds += one.Seconds
	}
	r.Verdict = result.Summary(own)
	count := result.Count(own)
	for _, v := range []result.Verdict{result.Fail, result.Error, result.Warn} {
		for _, one := range own {
			if one.Verdict != v {
				continue
			}
			r.Objects = append(r.Objects, result.Object{Name: one.ID, Verdict: v, Reason: one.Reason, Measured: one.Measured})
			if r.Reason == "" && v != result.Warn {
				r.Reason, r.Remedy = one.ID+": "+one.Reason, one.Remedy
			}
		}
	}
	switch n := len(r.Objects) - count[result.Warn]; {
	case r.Verdict == result.Pass && count[result.Warn] > 0:
		r.Verdict, r.Reason = result.Warn, fmt.Sprintf("%s: %s", r.Objects[0].Name, r.Objects[0].Reason)
	case r.Verdict == result.Skip:
		r.Reason = "all of its own checks were skipped"
	case n > 1:
		r.Reason += fmt.Sprintf("; and %d more", n-1)
	}
	return r
}

// fileName turns a machine's name into a valid file name.
func fileName(name string) string { return strings.ReplaceAll(name, "/", "_") }
