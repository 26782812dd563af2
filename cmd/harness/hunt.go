package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/hunt"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/version"
)

// huntOptions are the options of "harness hunt".
type huntOptions struct {
	fabric.HuntOptions
	job            fabricOptions
	tool           string
	gpus, seed     uint64
	output         string
	stdout, stderr io.Writer
}

func huntCommand(out, errOut io.Writer) *cli.Command {
	o := huntOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name:  "hunt",
		Usage: "find the slow nodes of a job",
		Description: "Started by srun, mpirun or torchrun, a process on each machine. Random pairs are measured, all at once, round after round,\n" +
			"until each machine is accused or cleared with a stated probability of error; no value is compared with a fixed number.\n" +
			"Exits 0 if no machine is accused, 1 if one is, or is lost, 2 on wrong usage, 3 if it could not run or was not decided.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "tool", Value: "auto", Destination: &o.tool, Usage: "measure with `TOOL`: tcp, rdma (each kind of port by itself), coll (all-reduce in groups, on GPUs), or auto: rdma where there are ports"},
			&cli.DurationFlag{Name: "duration", Destination: &o.Duration, Usage: "`TIME` of a measurement, in each direction (default: 200ms with tcp, 500ms with rdma and coll)"},
			&cli.DurationFlag{Name: "for", Destination: &o.For, Usage: "measure for `TIME` at least, with tcp and rdma: when all is decided, small packets alone, below 1 % of a link, for what is rare"},
			&cli.IntFlag{Name: "group", Value: 2, Destination: &o.GroupSize, Usage: "with coll: `N` machines a group"},
			&cli.StringFlag{Name: "bytes", Value: "256M", Destination: &o.Bytes, Usage: "with coll: `SIZE` of the all-reduce"},
			&cli.Uint64Flag{Name: "gpus", Destination: &o.gpus, Usage: "with coll: `N` GPUs of each machine (default: all)"},
			&cli.StringFlag{Name: "device", Value: "gpu", Usage: "with coll: ranks are on `DEVICE`: gpu, or cpu for host memory"},
			&cli.Float64Flag{Name: "alpha", Value: 0.01, Destination: &o.Alpha, Usage: "false-positive rate: name a node that is not slow with probability `P` at most"},
			&cli.Float64Flag{Name: "beta", Value: 0.01, Destination: &o.Beta, Usage: "false-negative rate: clear a slow node with probability `P` at most"},
			&cli.Float64Flag{Name: "least", Value: 0.05, Destination: &o.Least, Usage: "ignore differences below `SHARE`"},
			&cli.Float64Flag{Name: "find", Value: 0.10, Destination: &o.Find, Usage: "find nodes that are slower by `SHARE`"},
			&cli.IntFlag{Name: "max-rounds", Destination: &o.MaxRounds, Usage: "give up after `N` rounds (default: 48 and 8 for each doubling of machines)"},
			&cli.Uint64Flag{Name: "seed", Destination: &o.seed, Usage: "choose pairs by the seed `N` (default: random)"},
			&cli.StringFlag{Name: "switch", EnvVars: []string{"ASSAY_SWITCH"}, Destination: &o.At, Usage: "place this machine at the switch or rack `NAME` (or \"pod.rack.tray\"), to compare paths between them (default: Slurm's topology)"},
			grammar.Format(&o.output, "text", "json"),
		}, o.job.flags()...),
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if err := o.validate(c.String("device")); err != nil {
				return err
			}
			return o.run(c.Context)
		},
	}
}

func (o *huntOptions) validate(device string) error {
	if err := o.job.check(); err != nil {
		return err
	}
	switch o.tool {
	case "auto":
		o.Tool = fabric.Auto
	case "tcp", "rdma", "coll":
		o.Tool = fabric.Tool(o.tool)
	default:
		return exit.Usagef("--tool is auto, tcp, rdma or coll, not %q", o.tool)
	}
	if o.For < 0 || o.For > 24*time.Hour {
		return exit.Usagef("--for is up to 24h, not %v", o.For)
	}
	if o.For > 0 && o.Tool == fabric.Coll {
		return exit.Usagef("--for measures with small packets alone: it takes --tool tcp or rdma, not %s", o.tool)
	}
	if o.Duration < 0 {
		return exit.Usagef("--duration must be more than nothing")
	}
	switch device {
	case "cpu":
		o.Coll = []string{"--device", "cpu", "-g", "1"}
	case "gpu":
		o.Coll = []string{"--device", "gpu"}
		if o.gpus > 0 {
			o.Coll = append(o.Coll, "-g", strconv.FormatUint(o.gpus, 10))
		}
	default:
		return exit.Usagef("--device is gpu or cpu, not %q", device)
	}
	if o.At == "" {
		// topology/tree sets it to the switches from the root down, and the node.
		if way := strings.Split(os.Getenv("SLURM_TOPOLOGY_ADDR"), "."); len(way) > 1 {
			o.At = strings.Join(way[:len(way)-1], ".")
		}
	}
	if o.Seed = o.seed; o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return nil
}

func (o *huntOptions) run(ctx context.Context) (err error) {
	f, err := o.job.join(ctx, machine.NodeName(os.Getenv), o.stderr)
	if err != nil {
		return err
	}
	if f == nil {
		return exit.Usagef("it takes several machines: start it with srun, mpirun or torchrun, a process on each")
	}
	defer func() { err = f.Finish(err) }()
	o.Ports, o.RDMA = fabric.RDMAPorts()
	bar := newStatusLine(o.stderr)
	o.Progress = func(round, undecided int) { bar.show("round %d, %d undecided", round, undecided) }
	defer bar.clear()
	var r *fabric.HuntReport
	err = f.Together(func() (err error) {
		r, err = f.Hunt(ctx, o.HuntOptions)
		if r != nil {
			r.Host, r.Version = f.Name(f.Rank()), version.Get().String()
			if werr := writeReport(r, o.stdout, o.output, ""); werr != nil {
				return werr
			}
		}
		return err
	})
	switch {
	case err != nil:
		return exit.With(exit.NotDone, fmt.Errorf("hunt: %w", err))
	case r == nil:
		return nil
	case r.Outcome == hunt.Found:
		return exit.With(exit.Fail, nil)
	case r.Outcome == hunt.Undecided:
		return exit.With(exit.NotDone, nil)
	}
	return nil
}
