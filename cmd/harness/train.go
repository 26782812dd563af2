package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/harness/train"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/host/sysfs"
	"github.com/assay-hpc/assay/internal/result"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/perftest/mesh"
)

func trainCommand(out io.Writer) *cli.Command {
	var o train.Options
	var format string
	return &cli.Command{
		Name:  "train",
		Usage: "run a few steps of a real training job, in PyTorch",
		Description: "A GPT of half a billion weights with data parallelism, a process for each GPU: on this machine, or started by srun,\n" +
			"mpirun or torchrun with a process on each machine. Says how long a step takes and how much of it is computing, names GPUs\n" +
			"that all others wait for, and fails where the loss does not fall or GPUs end with different weights.\n" +
			"Exits 0 if all is well, 1 if not, 2 on wrong usage, 3 where there is no PyTorch or it could not run.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "device", Value: "gpu", Destination: &o.Device, Usage: "train on `DEVICE`: gpu, or cpu with a tiny model"},
			&cli.IntFlag{Name: "ranks", Destination: &o.Ranks, Usage: "`N` processes on each machine (default: all GPUs; 2 with cpu)"},
			&cli.IntFlag{Name: "steps", Value: 20, Destination: &o.Steps, Usage: "time `N` steps"},
			&cli.StringFlag{Name: "python", Value: "python3", EnvVars: []string{"ASSAY_PYTHON"}, Destination: &o.Python, Usage: "the interpreter that has PyTorch is `PROGRAM`"},
			&cli.DurationFlag{Name: "limit", Value: 5 * time.Minute, Destination: &o.Timeout, Usage: "give up after `TIME`"},
			grammar.Format(&format, "text", "json"),
		},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			switch {
			case o.Device != "gpu" && o.Device != "cpu":
				return exit.Usagef("--device is gpu or cpu, not %q", o.Device)
			case o.Steps < 3 || o.Steps > 10000:
				return exit.Usagef("--steps is from 3 to 10000, not %d", o.Steps)
			case c.IsSet("ranks") && (o.Ranks < 1 || o.Ranks > 1024):
				return exit.Usagef("--ranks is at least 1, not %d", o.Ranks)
			case o.Timeout <= 0:
				return exit.Usagef("--limit must be more than nothing")
			}
			return asRank(c.Context, "train", func(error) int { return exit.NotDone }, func(ctx context.Context, ranks *fabric.Ranks) error {
				return runTrain(ctx, o, ranks, out, format)
			})
		},
	}
}

// runTrain trains, and the first process prints the report.
func runTrain(ctx context.Context, o train.Options, ranks *fabric.Ranks, out io.Writer, format string) error {
	o.Addr, o.Host, o.Warmup = ranks.Addr, machine.NodeName(os.Getenv), 3
	if o.Device == "cpu" {
		o.Ranks = cmp.Or(o.Ranks, 2)
	} else if o.Ranks == 0 {
		tree, err := sysfs.Open("/")
		if err != nil {
			return err
		}
		o.Ranks = machine.PCIGPUs(tree)
	}
	var g train.Group = mesh.Alone{}
	if ranks.Net != nil {
		g = ranks.Net
	}
	begun := time.Now()
	res, err := train.Run(ctx, o, g)
	if err != nil {
		return err
	}
	if g.Rank() == 0 {
		res.ID, res.Title, res.Seconds = train.ResultID, train.Title, time.Since(begun).Seconds()
		r := &result.Report{Kind: "train", Host: o.Host, Version: version.Get().String(), Time: begun.UTC().Truncate(time.Second), Seconds: time.Since(begun).Seconds(), Results: []result.Result{res}}
		err = writeFound(r, out, format, "", report.TextOptions{})
	}
	// A launcher that sees a process end may kill the others.
	if _, waited := g.AllGather(ctx, nil); err == nil {
		err = waited
	}
	if err != nil || g.Rank() != 0 {
		return err
	}
	switch res.Verdict {
	case result.Fail:
		return exit.With(exit.Fail, nil)
	case result.Error, result.Skip:
		return exit.With(exit.NotDone, nil)
	}
	return nil
}
