package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/dcgm/diag"
	"github.com/assay-hpc/assay/dcgm/hostengine"
	"github.com/assay-hpc/assay/internal/exit"
)

// bothEngines is the value of --engine for all engines.
const bothEngines = "both"

// dcgmLimits are the time limits of dcgmi diag by level; 0 is for tests by name. On
// eight GPUs level 3 takes up to half an hour, level 4 up to two hours.
var dcgmLimits = [...]time.Duration{time.Hour, 10 * time.Minute, 20 * time.Minute, 90 * time.Minute, 4 * time.Hour}

// checkEngine refuses what an engine cannot do.
func (o *diagOptions) checkEngine(p diag.Plan) error {
	switch o.engine {
	case diag.Assay:
		return nil
	case hostengine.Name, bothEngines:
	default:
		return exit.Usagef("--engine is assay, dcgm or both, not %q", o.engine)
	}
	switch {
	case o.gpus != "":
		return exit.Usagef("--gpus numbers GPUs as CUDA does, and DCGM does otherwise: leave it out, or use --engine assay")
	case o.engine == hostengine.Name && (len(p.Params) > 0 || o.duration > 0):
		return exit.Usagef("-p and --duration are assay's: leave them out, or use --engine assay or both")
	case o.engine == hostengine.Name && dcgmTests(p) == "":
		return exit.Usagef("-r %s: DCGM has none of these tests; use --engine assay", o.run)
	}
	return nil
}

// dcgmTests returns what dcgmi runs for a plan: its level, or test names if the plan does
// not contain the whole level. "" means that DCGM has none of the tests.
func dcgmTests(p diag.Plan) string {
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

// engines runs the plan on the engines that --engine names.
func (o *diagOptions) engines(ctx context.Context, plan diag.Plan, show func(diag.Event)) (*diag.Report, error) {
	r := new(diag.Report)
	if o.engine != hostengine.Name {
		var err error
		runner := diag.Runner{Command: diagCommandLine, Observe: show}
		if r, err = runner.Run(ctx, plan); err != nil {
			return r, err
		}
	}
	if o.engine == diag.Assay {
		return r, nil
	}
	tests := dcgmTests(plan)
	if tests == "" {
		r.Add(diag.Engine{Name: hostengine.Name, Reason: "it has none of the tests"}, nil)
		return r, nil
	}
	run := hostengine.Run{Tests: tests, Timeout: o.dcgmTimeout}
	if run.Timeout == 0 {
		run.Timeout = dcgmLimits[plan.Level]
	}
	e := diag.Event{Test: diag.Test{Name: "dcgmi diag -r " + tests}, Total: 1}
	show(e)
	engine, results, err := run.Do(ctx)
	if errors.Is(err, hostengine.ErrMissing) && o.engine == bothEngines {
		engine.Reason = err.Error()
	} else if err != nil {
		return nil, err
	}
	r.Add(engine, results)
	e.Done, e.Result = 1, &diag.Result{Status: r.Engines[len(r.Engines)-1].Status}
	show(e)
	return r, context.Cause(ctx)
}
