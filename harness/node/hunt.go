package node

import (
	"context"
	"slices"
	"time"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
)

// huntParams are the parameters under "with" of hunt.
type huntParams struct {
	Tool     string        `yaml:"tool"` // auto, tcp, rdma or coll
	Duration time.Duration `yaml:"duration"`
	Args     []string      `yaml:"args"` // flags of harness hunt
}

// hunt returns one check: which of several machines is slower than the rest.
func (c *Config) hunt(e *suite.Entry) ([]suite.Check, error) {
	p := huntParams{Tool: "auto"}
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{"auto", "tcp", "rdma", "coll"}, p.Tool) {
		return nil, e.Errorf("with: tool: %q; want auto, tcp, rdma or coll", p.Tool)
	}
	uses := []string{useHost, useNetwork, UseJob}
	if p.Tool == "coll" {
		uses = append(uses, useGPUs)
	}
	return []suite.Check{{
		ID: e.ID, Title: "no machine is slower than the rest", Uses: uses, Timeout: 20 * time.Minute, About: p.about(c),
		Run: func(ctx context.Context, _ *suite.Env) result.Result { return c.huntWith(ctx, e.ID, p) },
	}}, nil
}

func (c *Config) huntWith(ctx context.Context, id string, p huntParams) result.Result {
	if res, alone := c.alone(); alone {
		return res
	}
	if p.Tool == "coll" && c.Job.Size() < 3 {
		return result.Skipped("it takes three machines: two are one group, and there is none to compare it with")
	}
	gpus := 0
	var own *result.Result
	if p.Tool == "coll" && !slices.Contains(p.Args, "cpu") {
		gpus = c.Machine.GPUs
		if res, none := c.noGPUs(); none {
			own = &res
		}
	}
	if bad := c.agree(id, gpus, own); bad != nil {
		return *bad
	}
	args := []string{"hunt", "--format", "json", "--tool", p.Tool}
	if p.Duration > 0 {
		args = append(args, "--duration", p.Duration.String())
	}
	r, bad := report[result.Report](ctx, c.Job.RunOn, append(args, p.Args...)...)
	if bad != nil {
		return *bad
	}
	return r.Of(fabric.ResultID)
}
