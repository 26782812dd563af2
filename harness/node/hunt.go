package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/harness/result"
	"github.com/assay-hpc/assay/harness/suite"
)

// huntParams is what stands under "with" of hunt.
type huntParams struct {
	Tool     string        `yaml:"tool"` // auto, tcp, rdma or coll
	Duration time.Duration `yaml:"duration"`
	Args     []string      `yaml:"args"` // flags of harness hunt
}

// hunt makes one check: which machine of several is slower than the rest.
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
		ID: e.ID, Title: "no machine is slower than the rest", Uses: uses, Timeout: 20 * time.Minute,
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
	r, bad := report[fabric.HuntReport](ctx, c.Job.RunOn, append(args, p.Args...)...)
	if bad != nil {
		return *bad
	}
	return huntResult(r)
}

// huntResult is a hunt's report: an object for each machine, or port of one.
func huntResult(r *fabric.HuntReport) result.Result {
	res := result.Passed("%d machines, %d measurements in %d rounds: no machine is %.0f %% slower than the rest", len(r.Machines), r.Measurements, r.Rounds, 100*r.Find)
	var said []string
	accused := map[string]string{}
	for _, s := range r.Suspects {
		said = append(said, s.Text)
		for _, m := range s.Machines {
			accused[m+" "+s.Port] = s.Text
		}
	}
	for _, a := range r.Absent {
		text := fmt.Sprintf("%s has no port %s that is up", a.Machine, a.Port)
		said = append(said, text)
		res.Objects = append(res.Objects, result.Object{Name: a.Machine + " " + a.Port, Verdict: result.Fail, Reason: text})
	}
	guilty := len(said) > 0
	for _, l := range r.Lost {
		text := fmt.Sprintf("%s was lost: %s", l.Machine, l.Reason)
		said = append(said, text)
		res.Objects = append(res.Objects, result.Object{Name: l.Machine, Verdict: result.Error, Reason: text})
	}
	for _, place := range r.Ranking {
		o := result.Object{Name: strings.TrimSpace(place.Machine + " " + place.Port), Quantity: "bandwidth, of what is usual", Verdict: result.Pass}
		o.Measured = &result.Measurement{Value: place.Ratio, Unit: "ratio", Spread: &result.Spread{Low: place.Low, High: place.High, Kind: result.Confidence, Samples: place.Values}}
		if text := accused[place.Machine+" "+place.Port]; text != "" {
			o.Verdict, o.Reason = result.Fail, text
		}
		res.Objects = append(res.Objects, o)
	}
	switch {
	case guilty:
		res.Verdict, res.Remedy = result.Fail, "look at the machine's ports, cables and counters (harness ib devices, harness health), then run harness hunt again"
	case len(said) > 0:
		res.Verdict = result.Error
	case r.Verdict == hunt.Undecided:
		res.Verdict = result.Warn
		said = append(said, fmt.Sprintf("not decided after %d rounds: %s", r.Rounds, some(r.Undecided)))
		res.Remedy = "the network is noisy: see whether others use it, or measure longer (duration)"
	}
	if len(said) > 0 {
		res.Reason = strings.Join(said, "; ")
	}
	var page strings.Builder
	if err := r.WriteText(&page); err != nil {
		return result.Errored("%v", err)
	}
	return res.WithOutput(page.String())
}
