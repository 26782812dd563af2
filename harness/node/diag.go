package node

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// diagParams are the parameters under "with" of diag.
type diagParams struct {
	Tests      []string      `yaml:"tests"`
	Duration   time.Duration `yaml:"duration"`   // of tests that put load on GPUs for some time
	Parameters []string      `yaml:"parameters"` // TEST.PARAMETER=VALUE
}

// diag returns one check per test.
func (c *Config) diag(e *suite.Entry) ([]suite.Check, error) {
	var p diagParams
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if len(p.Tests) == 0 {
		return nil, e.Errorf("with: tests: name one at least of %s", strings.Join(diag.Names(), ", "))
	}
	var figures []string
	for _, q := range result.Quantities("diag") {
		figures = append(figures, q.Name)
	}
	if err := checkLimits(e, figures); err != nil {
		return nil, err
	}
	params, err := diag.ParseParams(p.Parameters...)
	if err != nil {
		return nil, e.Errorf("with: parameters: %w", err)
	}
	var out []suite.Check
	left := newUnmet(e, len(p.Tests))
	for _, name := range p.Tests {
		plan, err := diag.Select(name, nil, nil)
		if err != nil || plan.Level > 0 || strings.Contains(name, ",") {
			return nil, e.Errorf("with: tests: there is no test %q; did you mean %q?", name, words.Nearest(name, diag.Names()))
		}
		plan.Duration, plan.Params = p.Duration, params
		out = append(out, c.test(e, plan, p, left))
	}
	return out, nil
}

// startUp is the time for a process to start and to exit, in addition to its work.
const startUp = time.Minute

func (c *Config) test(e *suite.Entry, plan diag.Plan, p diagParams, left *unmet) suite.Check {
	t := plan.Tests[0]
	args := []string{"diag", "-r", t.Name, "-o", "json"}
	if p.Duration > 0 {
		args = append(args, "--duration", p.Duration.String())
	}
	for _, one := range p.Parameters {
		if strings.HasPrefix(one, t.Name+".") {
			args = append(args, "-p", one)
		}
	}
	if len(e.Limits) > 0 {
		limits, _ := json.Marshal(e.Limits) // numbers and names: cannot fail
		args = append(args, "--limits", string(limits))
	}
	return suite.Check{
		About: c.onGPUs(1, max(5*time.Second, plan.Load(t)+aboutProcess)),
		ID:    e.ID + "/" + t.Name, Title: diag.Title(t), Uses: []string{useGPUs}, Timeout: plan.Longest(t) + startUp,
		Run: func(ctx context.Context, _ *suite.Env) result.Result {
			if res, none := c.noGPUs(); none {
				return res
			}
			r, bad := report[result.Report](ctx, c.Run, args...)
			if bad != nil {
				return *bad
			}
			res := r.Of(t.Name)
			if res.Verdict == result.Skip || res.Verdict == result.Error {
				return res
			}
			var figures []string
			for _, o := range res.Objects {
				figures = append(figures, o.Quantity)
			}
			if err := left.after(e, figures); err != nil {
				return result.Errored("%v", err)
			}
			return res
		},
	}
}

func gpuName(i int) string { return fmt.Sprintf("GPU %d", i) }
