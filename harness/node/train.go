package node

import (
	"context"
	"strconv"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/harness/train"
	"github.com/assay-hpc/assay/internal/result"
)

// trainParams are the parameters under "with" of train.
type trainParams struct {
	Device string `yaml:"device"` // gpu: all GPUs; cpu: ranks on host memory
	Ranks  int    `yaml:"ranks"`  // with cpu
	Steps  int    `yaml:"steps"`
	Over   string `yaml:"over"` // nodes: all machines of the job, be it one
}

// trainLimit is how long starting PyTorch on all machines and training may take.
const trainLimit = 4 * time.Minute

// train returns one check: a few steps of a real training job.
func (c *Config) train(e *suite.Entry) ([]suite.Check, error) {
	p := trainParams{Device: "gpu", Ranks: 2, Steps: 20}
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	if err := checkLimits(e, []string{train.ResultID}); err != nil {
		return nil, err
	}
	switch {
	case p.Device != "gpu" && p.Device != "cpu":
		return nil, e.Errorf("with: device: %q; want gpu or cpu", p.Device)
	case p.Over != "" && p.Over != "nodes":
		return nil, e.Errorf("with: over: %q; want nodes, or nothing", p.Over)
	case p.Ranks < 1 || p.Steps < 3:
		return nil, e.Errorf("with: ranks is 1 and steps 3 at least")
	}
	check := suite.Check{
		ID: e.ID, Title: train.Title, Uses: []string{useGPUs, useHost}, Timeout: trainLimit + startUp,
		Run:   func(ctx context.Context, _ *suite.Env) result.Result { return c.trained(ctx, e, p) },
		About: aboutTorch,
	}
	if p.Device == "gpu" {
		check.About = c.onGPUs(1, aboutTorch)
	}
	if p.Over != "" {
		check.Title, check.Uses = check.Title+", over all machines", append(check.Uses, useNetwork, UseJob)
	}
	return []suite.Check{check}, nil
}

func (c *Config) trained(ctx context.Context, e *suite.Entry, p trainParams) result.Result {
	ranks, run := p.Ranks, c.Run
	var own *result.Result
	if p.Device == "gpu" {
		ranks = c.Machine.GPUs
		if res, none := c.noGPUs(); none {
			own = &res
		}
	}
	if _, alone := c.alone(); p.Over != "" && !alone {
		own, run = c.agree(e.ID, ranks, own), c.Job.Run
	}
	if own != nil {
		return *own
	}
	r, bad := report[result.Report](ctx, run, "train", "--device", p.Device, "--ranks", strconv.Itoa(ranks), "--steps", strconv.Itoa(p.Steps),
		"--limit", trainLimit.String(), "--format", "json")
	if bad != nil {
		return *bad
	}
	res := r.Of(train.ResultID)
	if rule, ok := e.Limits[train.ResultID]; ok && res.Measured != nil && res.Verdict != result.Fail {
		o := result.Object{Quantity: train.ResultID, Verdict: res.Verdict, Measured: res.Measured}
		rule.Judge(train.ResultID, &o, func(string) (float64, string) { return 0, "" })
		if o.Verdict != result.Pass {
			res.Verdict, res.Reason = o.Verdict, o.Reason
		}
	}
	return res
}
