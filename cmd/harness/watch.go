package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/watch"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/plain"
)

type watchOptions struct {
	job, format string
	last        int
	every       time.Duration
	once        bool
	out         io.Writer
}

func watchCommand(out io.Writer) *cli.Command {
	o := watchOptions{out: out}
	return &cli.Command{
		Name: "watch", Usage: "show the last calls of running communicators", ArgsUsage: "[PID...]",
		Description: "Reads the flight recorders of processes of this machine whose collectives run on assay's engine (libnccl.so.2, harness coll)\n" +
			"on GPUs. The processes need not answer: they may be stopped, or wait in a driver. Without PIDs it shows all that there are.\n" +
			"For a job on several machines: srun --overlap --jobid ID harness watch --job ID --once",
		Flags: []cli.Flag{
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
	var pids []int
	for _, a := range args {
		pid, err := strconv.Atoi(a)
		if err != nil || pid < 1 {
			return exit.Usagef("%q is not the number of a process", a)
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
			fmt.Fprint(plain.Raw(o.out), "\x1b[H\x1b[2J") // clear the screen
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
