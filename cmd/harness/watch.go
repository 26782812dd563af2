package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/watch"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/words"
)

type watchOptions struct {
	job, format string
	torch       string
	last        int
	every       time.Duration
	once        bool
	out         io.Writer
}

func watchCommand(out io.Writer) *cli.Command {
	o := watchOptions{out: out}
	return &cli.Command{
		Name: "watch", Usage: "show the last calls of running communicators", ArgsUsage: "[PID... | DUMP...]",
		Description: "Reads the flight recorders of processes of this machine whose collectives run on assay's engine (libnccl.so.2, harness coll)\n" +
			"on GPUs. The processes need not answer: they may be stopped, or wait in a driver. Without PIDs it shows all that there are.\n" +
			"For a job on several machines: srun --overlap --jobid ID harness watch --job ID --once\n" +
			"DUMPs are files, or a directory of them, that PyTorch's flight recorder wrote (TORCH_NCCL_TRACE_BUFFER_SIZE,\n" +
			"nccl_trace_rank_0, ...), with any library: it says in which operation each process group stands, and which ranks are the reason.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "torch", Destination: &o.torch, Usage: "write what is recorded to `DIR`, as PyTorch's flight recorder does, for its tools: nccl_trace_rank_N for each rank of the job"},
			&cli.StringFlag{Name: "job", Destination: &o.job, Usage: "show processes of the Slurm job `ID`"},
			&cli.IntFlag{Name: "last", Aliases: []string{"n"}, Value: 1, Destination: &o.last, Usage: "show the last `N` operations of each communicator, " + strconv.Itoa(flight.Entries) + " at most"},
			&cli.DurationFlag{Name: "every", Value: time.Second, Destination: &o.every, Usage: "refresh after `TIME`"},
			&cli.BoolFlag{Name: "once", Destination: &o.once, Usage: "show once and exit (always where stdout is not a terminal)"},
			&cli.StringFlag{Name: "format", Aliases: []string{"o"}, Value: "text", Destination: &o.format, Usage: "`FORMAT` on stdout: text, or json (once)"},
		},
		Action: func(c *cli.Context) error { return o.run(c.Context, c.Args().Slice()) },
	}
}

func (o *watchOptions) run(ctx context.Context, args []string) error {
	if len(args) > 0 && !slices.ContainsFunc(args, isNumber) {
		if o.torch != "" {
			return exit.Usagef("--torch is about running processes; %q is no PID", args[0])
		}
		return o.dumps(args)
	}
	var pids []int
	for _, a := range args {
		pid, err := strconv.Atoi(a)
		if err != nil || pid < 1 {
			return exit.Usagef("%q is not the number of a process; dumps of PyTorch's flight recorder are named without any", a)
		}
		pids = append(pids, pid)
	}
	switch {
	case o.format != "text" && o.format != "json":
		return exit.Usagef("--format is text or json, not %q", o.format)
	case o.last < 1 || o.last > flight.Entries:
		return exit.Usagef("--last is from 1 to %d, not %d", flight.Entries, o.last)
	case o.every <= 0:
		return exit.Usagef("--every is a time, such as 1s, not %v", o.every)
	case len(pids) > 0 && o.job != "":
		return exit.Usagef("--job and PIDs exclude each other")
	}
	if o.torch != "" {
		files, err := watch.ExportTorch(o.torch, pids, o.job)
		for _, f := range files {
			fmt.Fprintln(o.out, f)
		}
		if err != nil {
			return exit.With(exit.NotDone, err)
		}
		return nil
	}
	live := !o.once && o.format == "text" && isTerminal(o.out)
	for {
		all, err := watch.Look(pids, o.job, o.last)
		if err != nil {
			return exit.With(exit.NotDone, err)
		}
		if o.format == "json" {
			return writeJSON(o.out, struct {
				Schema    string          `json:"schema"`
				Processes []watch.Process `json:"processes"`
			}{"assay.watch/1", all})
		}
		if live {
			fmt.Fprint(words.Raw(o.out), "\x1b[H\x1b[2J") // clear the screen
		}
		watch.Write(o.out, all, time.Now())
		if !live {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
	}
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// dumps shows what PyTorch's flight recorder wrote. The exit status is 1 if some operation has not
// completed, and 3 if no dump could be read.
func (o *watchOptions) dumps(paths []string) error {
	if o.format != "text" && o.format != "json" {
		return exit.Usagef("--format is text or json, not %q", o.format)
	}
	if o.job != "" {
		return exit.Usagef("--job and dumps exclude each other")
	}
	all, err := watch.ReadTorch(paths)
	if len(all) == 0 {
		return exit.With(exit.NotDone, err)
	}
	found := watch.Torch(all)
	stands := slices.ContainsFunc(found, func(f watch.TorchFinding) bool { return len(f.Ranks) > 0 })
	if o.format == "json" {
		if werr := writeJSON(o.out, struct {
			Schema   string               `json:"schema"`
			Dumps    int                  `json:"dumps"`
			Findings []watch.TorchFinding `json:"findings"`
		}{"assay.watch.torch/1", len(all), found}); werr != nil {
			return werr
		}
	} else {
		watch.WriteTorch(o.out, all, found)
	}
	switch {
	case err != nil:
		return exit.With(exit.NotDone, fmt.Errorf("some of it was not read: %w", err))
	case stands:
		return exit.With(exit.Fail, nil)
	}
	return nil
}
