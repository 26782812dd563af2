package node

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/nearest"
)

// diagParams is what stands under "with" of diag.
type diagParams struct {
	Tests      []string      `yaml:"tests"`
	Duration   time.Duration `yaml:"duration"`   // of tests that load GPUs for some time
	Parameters []string      `yaml:"parameters"` // TEST.PARAMETER=VALUE
}

// diag makes a check of each test.
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
			return nil, e.Errorf("with: tests: there is no test %q; did you mean %q?", name, nearest.To(name, diag.Names()))
		}
		plan.Duration, plan.Params = p.Duration, params
		out = append(out, c.test(e, plan, p, left))
	}
	return out, nil
}

// startUp is for a process to begin and to end, beside what it does.
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
	return suite.Check{
		ID: e.ID + "/" + t.Name, Title: "GPUs stand the test: " + t.Title, Uses: []string{useGPUs}, Timeout: plan.Longest(t) + startUp,
		Run: func(ctx context.Context, _ *suite.Env) result.Result {
			if res, none := c.noGPUs(); none {
				return res
			}
			r, bad := report[diag.Report](ctx, c.Run, args...)
			if bad != nil {
				return *bad
			}
			return diagResult(e, r, t.Name, left)
		},
	}
}

// diagResult is a test of a report.
func diagResult(e *suite.Entry, r *diag.Report, name string, left *unmet) result.Result {
	i := slices.IndexFunc(r.Tests, func(t diag.Result) bool { return t.Test == name && t.Engine == diag.Assay })
	if i < 0 {
		return result.Errored("the report of harness diag has no test %s", name)
	}
	t := &r.Tests[i]
	uuids := map[int]string{}
	for _, g := range r.GPUs {
		uuids[g.Index] = g.UUID
	}
	var objects []result.Object
	var names []string
	for _, m := range t.Measurements {
		if m.Unit == "GFLOP/s" {
			m.Value, m.Unit, m.Reference, m.Floor = m.Value/1e3, "TFLOP/s", m.Reference/1e3, m.Floor/1e3
			m.Peak, m.Typical = nil, nil // there are none in this unit
		}
		o := result.Object{Name: "all GPUs", Quantity: m.Name, Verdict: result.Pass, Measured: measured(m.Value, cmp.Or(m.Unit, "count"), m.Reference, m.Source)}
		if m.GPU != diag.NoGPU {
			o.Name, o.ID = gpuName(m.GPU), uuids[m.GPU]
		}
		if m.Peer != nil {
			o.Peer = gpuName(*m.Peer)
		}
		atLeast(o.Measured, m.Floor, m.FloorSource)
		if l := o.Measured.Limit; l != nil && !l.Passes(m.Value) {
			o.Verdict, o.Reason = result.Fail, fmt.Sprintf("%.4g %s, less than %.4g", m.Value, m.Unit, l.Value)
		}
		names = append(names, m.Name)
		override(e, m.Name, &o, known{m.Peak, m.Typical})
		objects = append(objects, o)
	}
	res := result.Result{Verdict: t.Status, Reason: t.Reason, Objects: result.Distinct(objects), Measured: result.Speaking(e.ID+"/"+name, objects), Output: t.Output}
	var said []string
	for _, f := range t.Findings {
		if f.Status == res.Verdict && res.Remedy == "" {
			res.Remedy = f.Remedy
		}
		text := f.Text
		if f.GPU != diag.NoGPU {
			text = gpuName(f.GPU) + ": " + text
		}
		said = append(said, text)
	}
	res.Reason = cmp.Or(res.Reason, strings.Join(said, "; "))
	if res.Verdict != result.Skip && res.Verdict != result.Error {
		if err := left.after(e, names); err != nil {
			return result.Errored("%v", err)
		}
		res = judged(e, res)
	}
	if res.Verdict == result.Pass && res.Reason == "" {
		res.Reason = count(len(r.GPUs), "GPU")
	}
	return res
}

// judged takes limits of the file into account, which the report knows nothing of.
func judged(e *suite.Entry, res result.Result) result.Result {
	if len(e.Limits) == 0 {
		return res
	}
	if own := result.Sum(res.Objects); result.Worst(own.Verdict, res.Verdict) != res.Verdict {
		res.Verdict, res.Reason = own.Verdict, own.Reason
	}
	return res
}

func gpuName(i int) string { return fmt.Sprintf("GPU %d", i) }
