package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/perftest/mesh"
)

// meshParams is what stands under "with" of mesh.
type meshParams struct {
	Args []string `yaml:"args"` // flags of harness ib mesh
	Over string   `yaml:"over"` // nodes: all machines of the job
}

// mesh makes one check: of all ports of the node with one another.
func (c *Config) mesh(e *suite.Entry) ([]suite.Check, error) {
	var p meshParams
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := checkLimits(e, nil); err != nil {
		return nil, err
	}
	check := suite.Check{ID: e.ID, Title: "RDMA between the node's ports is as fast as they are", Uses: []string{useNetwork}, Timeout: 5 * time.Minute}
	switch p.Over {
	case "":
		check.Run = func(ctx context.Context, _ *suite.Env) result.Result {
			return c.meshOf(ctx, e.ID, p, c.Run, c.fewPorts(2))
		}
	case "nodes":
		check.Title, check.Timeout, check.Uses = "RDMA between all machines' ports is as fast as they are", time.Hour, []string{useGPUs, useHost, useNetwork, UseJob}
		check.Run = func(ctx context.Context, _ *suite.Env) result.Result {
			if res, alone := c.alone(); alone {
				return res
			}
			return c.meshOf(ctx, e.ID, p, c.Job.Run, c.agree(e.ID, 0, c.fewPorts(1)))
		}
	default:
		return nil, e.Errorf("with: over: %q; want nodes, or nothing", p.Over)
	}
	return []suite.Check{check}, nil
}

// fewPorts is the result where too few ports are up.
func (c *Config) fewPorts(least int) *result.Result {
	switch {
	case c.Machine.Ports >= least:
		return nil
	case c.Machine.Ports == 0:
		return ptr(result.Skipped("no RDMA device has a port that is up"))
	}
	return ptr(result.Skipped("one port of an RDMA device is up, and it takes two"))
}

func (c *Config) meshOf(ctx context.Context, check string, p meshParams, run runner, cannot *result.Result) result.Result {
	if cannot != nil {
		return *cannot
	}
	r, bad := report[mesh.Report](ctx, run, append([]string{"ib", "mesh", "--format", "json"}, p.Args...)...)
	if bad != nil {
		return *bad
	}
	return meshResult(check, r)
}

// meshResult is a mesh's report.
func meshResult(check string, r *mesh.Report) result.Result {
	name := func(i int) string {
		s := fmt.Sprintf("%s/%d", r.Ports[i].Device, r.Ports[i].Port)
		if len(r.Hosts) > 1 {
			s = r.Hosts[r.Ports[i].Host] + " " + s
		}
		return s
	}
	var objects []result.Object
	for _, cell := range r.Cells {
		o := result.Object{Name: name(cell.From), Peer: name(cell.To), Verdict: cell.Verdict, Reason: cell.Reason}
		if cell.Error != "" {
			o.Verdict, o.Reason = result.Error, cell.Error
		}
		if cell.Value > 0 {
			value, samples := scaled(r.Unit, cell.Value), make([]float64, 0, len(cell.Samples))
			for _, s := range cell.Samples {
				samples = append(samples, scaled(r.Unit, s))
			}
			o.Measured = measured(value, unitOf(r.Unit), scaled(r.Unit, cell.Reference), "the slower port's rate")
			o.Measured.Spread = spread(samples)
		}
		objects = append(objects, o)
	}
	res := result.Sum(result.Distinct(objects))
	res.Measured = result.Speaking(check, objects)
	var said []string
	for _, f := range r.Findings {
		said = append(said, f.Text)
	}
	if len(said) > 0 {
		res.Verdict = result.Worst(res.Verdict, r.Verdict)
		res.Reason = strings.Join(said, "; ")
		res.Remedy = "look at the port's counters and cable (harness ib devices, harness health)"
	}
	if res.Verdict == result.Pass {
		res.Reason = result.Values(objects)
	}
	return res
}

// scaled makes what a mesh measures what people read: Gb/s, or µs.
func scaled(unit string, v float64) float64 {
	if unit == "nanoseconds" {
		return v / 1e3
	}
	return v * 8 / 1e9
}

func unitOf(unit string) string {
	if unit == "nanoseconds" {
		return "us"
	}
	return "Gb/s"
}
