package node

import (
	"context"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/variables"
	"github.com/assay-hpc/assay/internal/result"
)

// variablesParams are the parameters under "with" of variables.
type variablesParams struct {
	Over string `yaml:"over"` // nodes: all machines of the job
}

// variables returns one check: of what is set on this machine, or of what machines set differently.
func (c *Config) variables(e *suite.Entry) ([]suite.Check, error) {
	var p variablesParams
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	check := suite.Check{ID: e.ID, Title: variables.Title}
	switch p.Over {
	case "":
		check.Run = func(_ context.Context, env *suite.Env) result.Result { return variables.OnNode("/", env.Environ) }
	case "nodes":
		check.Title, check.Uses = "all machines set the same variables of NCCL", []string{UseJob}
		check.Run = func(_ context.Context, env *suite.Env) result.Result {
			if res, alone := c.alone(); alone {
				return res
			}
			return c.sameVariables(e.ID, env.Environ)
		}
	default:
		return nil, e.Errorf("with: over: %q; want nodes, or nothing", p.Over)
	}
	return []suite.Check{check}, nil
}

// sameVariables compares this machine's variables with those of the others.
func (c *Config) sameVariables(check string, environ []string) result.Result {
	mine := word{Check: check}
	set, err := variables.OfNCCL("/", environ)
	if mine.Variables = set; err != nil {
		mine.Verdict, mine.Reason = result.Error, err.Error()
	}
	return *c.ask(mine, func(states []word, ranks []int) *result.Result {
		if res := c.judgeWords(states, ranks); res != nil {
			return res
		}
		var names []string
		var of []map[string]variables.Value
		for i, w := range states {
			names, of = append(names, c.Job.Name(ranks[i])), append(of, w.Variables)
		}
		return ptr(variables.Compare(names, of))
	})
}
