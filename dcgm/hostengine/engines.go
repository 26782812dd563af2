package hostengine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/internal/result"
)

// The engines: dcgm/diag, DCGM, and one after the other. Name is also DCGM's in reports.
const (
	Assay = "assay"
	Name  = "dcgm"
	Both  = "both"
)

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

// RunAll runs a plan on an engine: Assay by the runner, Name by dcgmi within a time (0: by the
// level), or Both. It returns what the runner does.
func RunAll(ctx context.Context, engine string, plan diag.Plan, runner diag.Runner, limit time.Duration) (*result.Report, []diag.GPU, error) {
	if runner.Observe == nil {
		runner.Observe = func(diag.Event) {}
	}
	r, gpus := new(result.Report), []diag.GPU(nil)
	if engine != Name {
		var err error
		if r, gpus, err = runner.Run(ctx, plan); err != nil || engine == Assay {
			return r, gpus, err
		}
	}
	tests := Tests(plan)
	if tests == "" {
		r.Results = append(r.Results, skipped("it has none of the tests"))
		return r, gpus, nil
	}
	e := diag.Event{Test: diag.Test{Name: "dcgmi diag -r " + tests}, Total: 1}
	runner.Observe(e)
	results, err := runDCGM(ctx, tests, cmp.Or(limit, limits[plan.Level]))
	if errors.Is(err, ErrMissing) && engine == Both {
		results = []result.Result{skipped(err.Error())}
	} else if err != nil {
		return nil, nil, err
	}
	r.Results = append(r.Results, results...)
	e.Done, e.Verdict = 1, worst(results)
	runner.Observe(e)
	return r, gpus, context.Cause(ctx)
}

func worst(results []result.Result) result.Verdict {
	v := result.Skip
	for _, r := range results {
		v = result.Worst(v, r.Verdict)
	}
	return v
}
