package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/words"
)

// collParams are the parameters under "with" of coll.
type collParams struct {
	Operations []string      `yaml:"operations"`
	Device     string        `yaml:"device"` // gpu: all GPUs; cpu: ranks on host memory
	Ranks      int           `yaml:"ranks"`  // on host memory
	Engine     string        `yaml:"engine"` // assay or nccl
	Min        string        `yaml:"min"`
	Max        string        `yaml:"max"`
	Factor     int           `yaml:"factor"`
	MinTime    time.Duration `yaml:"min_time"`  // per size
	Over       string        `yaml:"over"`      // nodes: all machines of the job
	SameBits   bool          `yaml:"same_bits"` // not how fast, but whether sums have the same bits on whatever GPUs
	Split      string        `yaml:"split"`     // into groups of machines, like NCCL_TESTS_SPLIT
	Scale      bool          `yaml:"scale"`     // the largest size, over groups of 2, 4, 8, … machines, and over all
	// Variables are NCCL's and ours, for these runs alone. The database's figures are without them.
	Variables map[string]string `yaml:"variables"`
}

// coll returns one check per operation.
func (c *Config) coll(e *suite.Entry) ([]suite.Check, error) {
	p := collParams{Device: "gpu", Ranks: 4, Engine: "assay", Min: "8", Max: "1G", Factor: 4, MinTime: 20 * time.Millisecond}
	if err := e.Decode(&p); err != nil {
		return nil, err
	}
	switch {
	case len(p.Operations) == 0:
		return nil, e.Errorf("with: operations: name one at least of %s", strings.Join(perf.Collectives(), ", "))
	case p.Device != "gpu" && p.Device != "cpu":
		return nil, e.Errorf("with: device: %q; want gpu or cpu", p.Device)
	case p.Engine != "assay" && p.Engine != "nccl" || p.Engine == "nccl" && p.Device == "cpu":
		return nil, e.Errorf("with: engine: %q; want assay, or on GPUs nccl", p.Engine)
	case p.Over != "" && p.Over != "nodes":
		return nil, e.Errorf("with: over: %q; want nodes, or nothing", p.Over)
	case p.Split != "" && p.Over == "":
		return nil, e.Errorf("with: split: it goes with over: nodes")
	case p.Scale && (p.Over == "" || p.Split != ""):
		return nil, e.Errorf("with: scale: it goes with over: nodes, and without split")
	case p.SameBits && (p.Over != "" || p.Engine != "assay"):
		return nil, e.Errorf("with: same_bits: it goes without over, and with assay's engine")
	case p.Ranks < 2 && p.Over == "" || p.Ranks < 1 || p.Factor < 2:
		return nil, e.Errorf("with: ranks and factor are 2 at least")
	}
	if p.Split != "" {
		if err := perf.CheckSplit(p.Split); err != nil {
			return nil, e.Errorf("with: split: %w", err)
		}
	}
	if err := checkVariables(e, p.Variables); err != nil {
		return nil, err
	}
	if err := checkLimits(e, p.Operations); err != nil {
		return nil, err
	}
	var out []suite.Check
	for _, op := range p.Operations {
		if n := words.Nearest(op, perf.Collectives()); n != op {
			return nil, e.Errorf("with: operations: there is no %q; did you mean %q?", op, n)
		}
		check := suite.Check{
			About: p.about(c),
			ID:    e.ID + "/" + op, Title: fmt.Sprintf("%s among all GPUs is right, and fast enough", op), Uses: []string{useGPUs}, Timeout: 5 * time.Minute,
			Run: func(ctx context.Context, _ *suite.Env) result.Result { return c.collective(ctx, e, p, op) },
		}
		if p.Device == "cpu" {
			check.Title, check.Uses = fmt.Sprintf("%s among %d ranks on host memory is right", op, p.Ranks), []string{useHost}
		}
		if p.Over != "" {
			check.Title, check.Uses = fmt.Sprintf("%s over all machines is right, and fast enough", op), []string{useGPUs, useHost, useNetwork, UseJob}
		}
		if p.SameBits {
			check.Title = fmt.Sprintf("%s has the same bits on whatever GPUs the ranks are", op)
			if p.Device == "cpu" {
				check.Title = fmt.Sprintf("%s among %d ranks on host memory adds in the order of the ranks", op, p.Ranks)
			}
			if perf.CheckSameBits(op) != nil {
				return nil, e.Errorf("with: operations: same_bits: %w", perf.CheckSameBits(op))
			}
		}
		if len(p.Variables) > 0 {
			check.Title += ", with " + strings.Join(p.environ(), " ")
		}
		if p.Scale {
			check.Title = fmt.Sprintf("%s is right, and fast enough, over however many machines", op)
		}
		if p.Split != "" {
			check.Title = fmt.Sprintf("%s over groups of machines (%s) at once is right, and fast enough", op, p.Split)
		}
		out = append(out, check)
	}
	return out, nil
}

// collective measures one operation.
func (c *Config) collective(ctx context.Context, e *suite.Entry, p collParams, op string) result.Result {
	ranks, run := p.Ranks, c.Run
	var own *result.Result // why this machine cannot run it
	if p.Device == "gpu" {
		ranks = c.Machine.GPUs
		if res, none := c.noGPUs(); none {
			own = &res
		} else if ranks < 2 && p.Over == "" {
			own = ptr(result.Skipped("it takes two GPUs, and there is one"))
		}
	}
	if p.Over != "" {
		if res, alone := c.alone(); alone {
			return res
		}
		gpus := 0
		if p.Device == "gpu" {
			gpus = ranks
		}
		own, run = c.agree(e.ID+"/"+op, gpus, own), c.Job.Run
	}
	if own != nil {
		return *own
	}
	if p.SameBits {
		return c.sameBits(ctx, p, op, ranks)
	}
	if p.Scale {
		return c.scaled(ctx, e, p, op, ranks)
	}
	d, bad := report[perf.Document](ctx, run, p.command(op, ranks)...)
	if bad != nil {
		return *bad
	}
	return c.collResult(e, d, op, d.Ranks/ranks, p.Device == "gpu" && len(p.Variables) == 0)
}

// checkVariables refuses variables that neither NCCL nor assay's engine knows.
func checkVariables(e *suite.Entry, variables map[string]string) error {
	if len(variables) == 0 {
		return nil
	}
	var known []string
	for _, k := range knob.Table() {
		known = append(known, k.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if n := words.Nearest(name, known); n != name {
			return e.Errorf("with: variables: there is no %q; did you mean %q?", name, n)
		}
	}
	return nil
}

// environ returns the variables of a run, by name.
func (p *collParams) environ() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(p.Variables)) {
		out = append(out, name+"="+p.Variables[name])
	}
	return out
}

// command returns the variables and the arguments that measure one operation, with the given number
// of ranks on each machine.
func (p *collParams) command(op string, ranks int) []string {
	out := p.environ()
	if p.Split != "" {
		out = append(out, "NCCL_TESTS_SPLIT="+p.Split)
	}
	ms := strconv.FormatFloat(float64(p.MinTime)/float64(time.Millisecond), 'f', -1, 64)
	return append(out, "coll", op, "-g", strconv.Itoa(ranks), "-b", p.Min, "-e", p.Max, "-f", strconv.Itoa(p.Factor), "--min-time", ms,
		"--device", p.Device, "--engine", p.Engine, "--format", "json")
}

// collResult converts a benchmark's report to a result.
func (c *Config) collResult(e *suite.Entry, d *perf.Document, op string, nodes int, gpus bool) result.Result {
	switch {
	case d.Error != "":
		return result.Errored("%s", d.Error)
	case len(d.Rows) == 0:
		return result.Errored("nothing was measured")
	}
	res := result.Passed("%s, every result verified", words.Count(d.Ranks, "rank"))
	if nodes > 1 {
		res.Reason = fmt.Sprintf("%d machines, %s", nodes, res.Reason)
	}
	out := result.Curve{Name: op + ", out of place", X: "B", Y: "GB/s"}
	in := result.Curve{Name: op + ", in place", X: "B", Y: "GB/s"}
	for _, r := range d.Rows {
		if n := len(out.Points); n > 0 && float64(r.Bytes) <= out.Points[n-1].X {
			continue // one point per size: the first of several types or operations
		}
		out.Points = append(out.Points, result.Point{X: float64(r.Bytes), Y: r.OutOfPlace.BusBW})
		in.Points = append(in.Points, result.Point{X: float64(r.Bytes), Y: r.InPlace.BusBW})
	}
	last := out.Points[len(out.Points)-1]
	m := &result.Measurement{Value: last.Y, Unit: "GB/s"}
	o := result.Object{Name: fmt.Sprintf("%d ranks", d.Ranks), Quantity: "bus bandwidth", Verdict: result.Pass, Measured: m}
	c.judgeBusBW(e, &o, op, nodes, d.Ranks, int64(last.X), gpus)
	out.Expected, out.Source = m.Expected, m.Source
	res.Measured, res.Curves = m, []result.Curve{out, in}
	switch o.Verdict {
	case result.Error:
		res.Verdict, res.Reason = o.Verdict, o.Reason
	case result.Fail:
		res.Verdict, res.Reason, res.Remedy = o.Verdict, o.Reason, "look at bandwidth and health of the single GPUs and links first"
	}
	// A rank on host memory is late whenever something else runs, which means nothing.
	if t := d.Straggler; gpus && t != nil && t.Notable() {
		who := result.Object{Name: gpuName(t.Rank), Quantity: "behind the median rank", Verdict: result.Warn, Reason: t.String(), Measured: &result.Measurement{Value: t.Percent, Unit: "%"}}
		if nodes > 1 {
			who.Name = fmt.Sprintf("rank %d on %s", t.Rank, t.Host)
		}
		res.Objects = append(res.Objects, who)
		if res.Verdict == result.Pass {
			res.Verdict, res.Reason = result.Warn, who.Name+" is late: "+t.String()
			res.Remedy = "see whether something else runs there (harness health --only gpu/processes), and at its clocks, temperature and links"
		} else {
			res.Reason += "; " + who.Name + " is late: " + t.String()
		}
	}
	if d.Bad > 0 {
		res.Verdict, res.Reason = result.Fail, fmt.Sprintf("%d results were wrong%s", d.Bad, wrongOn(d))
		res.Remedy = "do not use the node: run harness diag -r 3 to find out which GPU or link it is"
	}
	return res
}

// judgeBusBW judges the bus bandwidth of an operation over a number of machines and ranks: with known by
// what the database expects, and by the entry's own limit.
func (c *Config) judgeBusBW(e *suite.Entry, o *result.Object, op string, nodes, ranks int, bytes int64, known bool) {
	m := o.Measured
	var k platform.Expected
	if figure := c.figure(op, nodes, ranks, bytes); known && figure != nil {
		k = *figure
		if best := cmp.Or(figure.Typical, figure.Peak); best != nil {
			m.Expect(best.Value, best.Source)
		}
		if figure.Floor != nil {
			m.AtLeast(figure.Floor.Value, figure.Floor.Source)
		}
	}
	if l := m.Limit; l != nil && !l.Passes(m.Value) {
		o.Verdict, o.Reason = result.Fail, fmt.Sprintf("%.4g GB/s with %d bytes, less than %.4g", m.Value, bytes, l.Value)
	}
	if rule, ok := e.Limits[op]; ok {
		rule.Judge(op, o, k.Of)
	}
}

// saturated is the message size from which bus bandwidth is about that of any larger message:
// with 8 H200, 512 MiB reach 0.93 of the value of 16 GiB, and floors are 0.87 of that.
const saturated = 512 << 20

// figure returns what the database expects of a collective: the lowest of several algorithms'
// figures. It ignores figures of larger messages, which small ones cannot be compared with.
func (c *Config) figure(op string, nodes, ranks int, bytes int64) *platform.Expected {
	var fit []platform.Expected
	for _, f := range c.Machine.Expect.Figures {
		if f.Name == op && max(f.Nodes, 1) == nodes && f.GPUs == ranks && (f.Bytes <= bytes || bytes >= saturated) && f.Floor != nil {
			fit = append(fit, f)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	lowest := slices.MinFunc(fit, func(a, b platform.Expected) int { return cmp.Compare(a.Floor.Value, b.Floor.Value) })
	return &lowest
}
