package node

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/variables"
	"github.com/assay-hpc/assay/internal/result"
)

// variablesParams are the parameters under "with" of variables.
type variablesParams struct {
	// Measure says that what variables cost among the node's GPUs is measured, by an AllReduce with each and without it.
	Measure bool `yaml:"measure"`
}

// variables returns one check: of what is set on this machine.
func (c *Config) variables(e *suite.Entry) ([]suite.Check, error) {
	var p variablesParams
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	check := suite.Check{
		ID: e.ID, Title: variables.Title,
		Run: func(ctx context.Context, env *suite.Env) result.Result { return c.variablesHere(ctx, p, env.Environ) },
	}
	if p.Measure {
		check.Uses, check.Timeout = []string{useGPUs}, 5*time.Minute
	}
	return []suite.Check{check}, nil
}

// variablesHere judges the variables on this machine, and measures what they cost.
func (c *Config) variablesHere(ctx context.Context, p variablesParams, environ []string) result.Result {
	conf, findings, err := variables.Read("/", environ)
	if err != nil {
		return result.Errored("%v", err)
	}
	if p.Measure && c.Machine.GPUs > 1 {
		c.measureVariables(ctx, conf, findings)
	}
	return variables.Result(conf, findings)
}

// maxMeasured is how many variables are measured: each takes some seconds.
const maxMeasured = 4

// measureVariables adds to findings what their variables cost, if that can be measured.
func (c *Config) measureVariables(ctx context.Context, conf knob.Configuration, findings []variables.Finding) {
	with, done := 0.0, map[string]bool{}
	for i := range findings {
		f := &findings[i]
		if done[f.Name] || len(done) == maxMeasured || !f.OnOneNode(conf) {
			continue
		}
		done[f.Name] = true
		if with == 0 {
			with = c.busBandwidth(ctx)
		}
		without := c.busBandwidth(ctx, f.Name+"=") // nothing counts as not set, and hides the files
		if with > 0 && without > 0 {
			f.Costs = append([]knob.Cost{{On: "this node", Text: fmt.Sprintf("all_reduce of 128 MiB %.3g GB/s, and %.3g without it", with, without), Source: "harness coll"}}, f.Costs...)
		}
	}
}

// busBandwidth returns that of an AllReduce among all GPUs, in GB/s; 0 if it cannot be measured, which
// the checks of collectives report.
func (c *Config) busBandwidth(ctx context.Context, environ ...string) float64 {
	args := append(environ, "coll", "all_reduce", "-g", strconv.Itoa(c.Machine.GPUs), "-b", "128M", "-e", "128M", "--min-time", "20", "--device", "gpu", "--engine", "assay", "--format", "json")
	d, bad := report[perf.Document](ctx, c.Run, args...)
	if bad != nil || d.Error != "" || len(d.Rows) == 0 {
		return 0
	}
	return d.Rows[0].OutOfPlace.BusBW
}
