package node

import (
	"context"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/perftest/mesh"
)

// meshParams are the parameters under "with" of mesh.
type meshParams struct {
	Args []string `yaml:"args"` // flags of harness ib mesh
	Over string   `yaml:"over"` // nodes: all machines of the job
}

// mesh returns one check: of all ports of the node with one another.
func (c *Config) mesh(e *suite.Entry) ([]suite.Check, error) {
	var p meshParams
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	check := suite.Check{ID: e.ID, Title: "RDMA between the node's ports is as fast as they are", Uses: []string{useNetwork}, Timeout: 5 * time.Minute, About: p.about(c)}
	switch p.Over {
	case "":
		check.Run = func(ctx context.Context, _ *suite.Env) result.Result {
			return c.meshOf(ctx, p, c.Run, c.fewPorts(2))
		}
	case "nodes":
		check.Title, check.Timeout, check.Uses = "RDMA between all machines' ports is as fast as they are", time.Hour, []string{useGPUs, useHost, useNetwork, UseJob}
		check.Run = func(ctx context.Context, _ *suite.Env) result.Result {
			if res, alone := c.alone(); alone {
				return res
			}
			return c.meshOf(ctx, p, c.Job.Run, c.agree(e.ID, 0, c.fewPorts(1)))
		}
	default:
		return nil, e.Errorf("with: over: %q; want nodes, or nothing", p.Over)
	}
	return []suite.Check{check}, nil
}

// fewPorts returns the result if too few ports are up.
func (c *Config) fewPorts(least int) *result.Result {
	switch {
	case c.Machine.Ports >= least:
		return nil
	case c.Machine.Ports == 0:
		return ptr(result.Skipped("no RDMA device has a port that is up"))
	}
	return ptr(result.Skipped("one port of an RDMA device is up, and it takes two"))
}

func (c *Config) meshOf(ctx context.Context, p meshParams, run runner, cannot *result.Result) result.Result {
	if cannot != nil {
		return *cannot
	}
	r, bad := report[result.Report](ctx, run, append([]string{"ib", "mesh", "--format", "json"}, p.Args...)...)
	if bad != nil {
		return *bad
	}
	return r.Of(mesh.ResultID)
}
