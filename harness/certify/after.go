package certify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

// times is how often a check is run by which the machine failed before. A fault that shows in every
// second run is missed by one in eight certificates, and by one in two without.
const times = 3

// Repeat runs checks by which the machine failed before several times, and all runs must pass. Those
// that are not wanted, or not in the suite, are left out, unless all is set: then they are added, from
// the suites that come with the harness if need be.
func (c *Certification) Repeat(ctx context.Context, ids []string, all bool) error {
	alone := c.file != nil && c.Fabric == nil
	if all && !alone && len(ids) > 0 {
		return exit.Usagef("--after: it is about one machine: name a suite about machines, such as --suite node, and start it once")
	}
	for _, id := range ids {
		var err error
		switch own := slices.Contains(ownIDs, id); {
		case slices.Contains(c.after, id):
		case all && own:
			err = c.compared(id)
		case all:
			err = c.add(ctx, id)
		case alone && !own && c.Wants(id):
			_, err = c.repeat(ctx, id, c.suite)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add repeats a check of the suite, or of one that comes with the harness.
func (c *Certification) add(ctx context.Context, id string) error {
	found, err := c.repeat(ctx, id, c.suite)
	for _, name := range node.Names() {
		if found || err != nil {
			return err
		}
		var f *suite.File
		if f, err = node.Load(name); err == nil {
			s := f.Suite(name, c.kinds)
			found, err = c.repeat(ctx, id, &s)
		}
	}
	if !found && err == nil {
		err = exit.Usagef("--after: the machine failed by %s, which is neither in the suite %s nor in one that comes with the harness: name the suite that has it with --suite FILE.yaml", id, c.suite.Name)
	}
	return err
}

// compared reports what a result lacks that certify adds itself.
func (c *Certification) compared(id string) error {
	switch {
	case id == gpusID && c.GPUs == nil:
		return exit.Usagef("--after: the machine failed by its number of GPUs: say with --gpus N how many it should have")
	case id == baselineID && c.Baseline.Earlier == nil:
		return exit.Usagef("--after: the machine failed by the comparison with an earlier certificate: name it with --baseline")
	}
	return nil
}

// repeat replaces a check by several runs of it, as a suite has it, or adds them. found says whether the
// suite has the check.
func (c *Certification) repeat(ctx context.Context, id string, s *suite.Suite) (found bool, err error) {
	var runs []suite.Check
	for range times {
		checks, err := s.Checks(ctx, c.Env) // anew: the checks of one list share what they measured
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(checks, func(k suite.Check) bool { return k.ID == id })
		if i < 0 {
			return false, nil
		}
		runs = append(runs, checks[i])
	}
	k := repeated(runs, cmp.Or(runs[0].Timeout, c.Timeout))
	c.after = append(c.after, id)
	if at := slices.Index(c.ids(), id); at >= 0 {
		c.Checks[at] = k
		c.longer += k.Timeout / times * (times - 1)
		return true, nil
	}
	k.Needs = slices.DeleteFunc(slices.Clone(k.Needs), func(need string) bool { return !slices.Contains(c.ids(), need) })
	c.Checks = append(c.Checks, k)
	c.longer += k.Timeout
	return true, nil
}

// repeated returns the check that runs others one after the other, and passes if all of them do.
func repeated(runs []suite.Check, limit time.Duration) suite.Check {
	k := runs[0]
	k.Timeout, k.About = limit*time.Duration(len(runs)), k.About*time.Duration(len(runs))
	k.Run = func(ctx context.Context, env *suite.Env) (res result.Result) {
		for i, run := range runs {
			if i > 0 {
				suite.Tell(ctx, fmt.Sprintf("run %d of %d", i+1, len(runs)))
			}
			was := res
			switch res = run.Run(ctx, env); {
			case res.Verdict == result.Skip:
				return result.Errored("the machine failed by it before, and now it is skipped: %s", res.Reason)
			case res.Verdict != result.Pass && res.Verdict != result.Warn:
				res.Reason = fmt.Sprintf("run %d of %d: %s", i+1, len(runs), res.Reason)
				return res
			case was.Verdict == result.Warn:
				res = was
			}
		}
		return res
	}
	return k
}

// repetitions describes the checks that were repeated; nil: none was.
func (c *Certification) repetitions() *certificate.After {
	if len(c.after) == 0 {
		return nil
	}
	return &certificate.After{Checks: c.after, Times: times}
}

// recall says of what fails how often it failed before.
func (c *Certification) recall(ctx context.Context, st *certificate.Statement) {
	if c.Recall == nil || st.Predicate.Verdict != result.Fail {
		return
	}
	known := history.NewRecall(st)
	c.Recall(ctx, known)
	said := map[string]bool{}
	for _, o := range known.Again() {
		i := slices.IndexFunc(st.Predicate.Results, func(r result.Result) bool { return r.ID == o.Check })
		if i < 0 || said[o.Check] {
			continue
		}
		said[o.Check] = true
		r := &st.Predicate.Results[i]
		r.Reason = o.When() + ": " + strings.TrimPrefix(r.Reason, o.Object+": ")
	}
}
