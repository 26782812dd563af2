package hostengine

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/dcgm/diag"
)

// Both is the choice of diag.Assay and Name.
const Both = "both"

// limits are the time limits of dcgmi diag by level; 0 is for tests by name. On
// eight GPUs level 3 takes up to half an hour, level 4 up to two hours.
var limits = [...]time.Duration{time.Hour, 10 * time.Minute, 20 * time.Minute, 90 * time.Minute, 4 * time.Hour}

// Tests returns what dcgmi runs for a plan: its level, or test names if the plan does
// not contain the whole level. "" means that DCGM has none of the tests.
func Tests(p diag.Plan) string {
	var names []string
	for _, t := range p.Tests {
		if t.Name != "p2p" { // DCGM's pcie does that
			names = append(names, t.Name)
		}
	}
	all, err := diag.Select(strconv.Itoa(p.Level), nil, nil)
	same := func(a, b diag.Test) bool { return a.Name == b.Name }
	if err == nil && slices.EqualFunc(p.Tests, all.Tests, same) {
		return strconv.Itoa(p.Level)
	}
	return strings.Join(names, ",")
}

// RunAll runs a plan on an engine: diag.Assay by the runner, Name by dcgmi within a time (0: by
// the level), or Both, one after the other.
func RunAll(ctx context.Context, engine string, plan diag.Plan, runner diag.Runner, limit time.Duration) (*diag.Report, error) {
	if runner.Observe == nil {
		runner.Observe = func(diag.Event) {}
	}
	r := new(diag.Report)
	if engine != Name {
		var err error
		if r, err = runner.Run(ctx, plan); err != nil {
			return r, err
		}
	}
	if engine == diag.Assay {
		return r, nil
	}
	tests := Tests(plan)
	if tests == "" {
		r.Add(diag.Engine{Name: Name, Reason: "it has none of the tests"}, nil)
		return r, nil
	}
	run := Run{Tests: tests, Timeout: limit}
	if run.Timeout == 0 {
		run.Timeout = limits[plan.Level]
	}
	e := diag.Event{Test: diag.Test{Name: "dcgmi diag -r " + tests}, Total: 1}
	runner.Observe(e)
	by, results, err := run.Do(ctx)
	if errors.Is(err, ErrMissing) && engine == Both {
		by.Reason = err.Error()
	} else if err != nil {
		return nil, err
	}
	r.Add(by, results)
	e.Done, e.Result = 1, &diag.Result{Status: r.Engines[len(r.Engines)-1].Status}
	runner.Observe(e)
	return r, context.Cause(ctx)
}
