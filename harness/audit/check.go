package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// Kind offers the audit of a machine to suites.
func Kind() suite.Kind {
	return suite.Kind{Name: "audit", Usage: "no version that is installed or loaded is known to be faulty, as harness audit finds it", Make: func(e *suite.Entry) ([]suite.Check, error) {
		if err := e.Decode(&struct{}{}); err != nil {
			return nil, err
		}
		return []suite.Check{{ID: e.ID, Title: "no version here is known to be faulty", Run: Root}}, nil
	}}
}

// Root compares the versions below a root, and on a node those of its driver and kernel, with the faults that are known.
func Root(_ context.Context, env *suite.Env) result.Result {
	s, err := Read(env.Root)
	if err != nil {
		return result.Errored("%v", err)
	}
	if s.Arch == "" {
		_, s.Arch, _ = strings.Cut(env.Platform, "/")
	}
	r, err := Audit(s)
	if err != nil {
		return result.Errored("%v", err)
	}
	return r.Check()
}

// Check is the findings as a check's result: a warning, if a version surely has a fault that is more than a wrong report.
func (r *Report) Check() result.Result {
	var certain []string
	perhaps, remedy := 0, ""
	for _, f := range r.Findings {
		if f.If != "" || f.Of.Patched || f.Kind == Kinds[len(Kinds)-1] {
			perhaps++
			continue
		}
		certain = append(certain, fmt.Sprintf("%s %s: %s (%s)", cmp.Or(titles[f.Component], f.Component), f.Of.Version, f.Kind, f.ID))
		remedy = cmp.Or(remedy, f.Remedy)
	}
	if len(r.System.Versions) == 0 {
		return result.Skipped("it has no component whose faults are listed")
	}
	var t strings.Builder
	if err := r.WriteText(&t, 100); err != nil {
		return result.Errored("%v", err)
	}
	more := ""
	if perhaps > 0 {
		more = fmt.Sprintf("; %s more under a condition, or of little weight", words.Count(perhaps, "fault"))
	}
	if len(certain) == 0 {
		return result.Passed("%s, none surely with one of the %d faults that are known%s", words.Count(len(r.System.Versions), "version"), r.Known, more).WithOutput(t.String())
	}
	return result.Result{Verdict: result.Warn, Reason: strings.Join(slices.Compact(certain), "; ") + more, Remedy: strings.TrimSuffix(remedy, ".") + "; harness audit says more"}.WithOutput(t.String())
}
