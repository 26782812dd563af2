package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll"
	"github.com/assay-hpc/assay/coll/flight"
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
			&cli.IntFlag{Name: "last", Aliases: []string{"n"}, Value: 1, Destination: &o.last, Usage: "show the last `N` operations of each communicator, 64 at most"},
			&cli.DurationFlag{Name: "every", Value: time.Second, Destination: &o.every, Usage: "refresh after `TIME`"},
			&cli.BoolFlag{Name: "once", Destination: &o.once, Usage: "show once and exit (always where stdout is not a terminal)"},
			&cli.StringFlag{Name: "format", Aliases: []string{"o"}, Value: "text", Destination: &o.format, Usage: "`FORMAT` on stdout: text, or json (once)"},
		},
		Action: func(c *cli.Context) error { return o.run(c.Context, c.Args().Slice()) },
	}
}

// A watched is a process and the calls of its communicators.
type watched struct {
	PID           int                   `json:"pid"`
	Command       string                `json:"command"`
	State         flight.State          `json:"state"`
	Communicators []watchedCommunicator `json:"communicators"`
}

type watchedCommunicator struct {
	Name    string             `json:"name"`
	Rank    int                `json:"rank"`
	Size    int                `json:"size"`
	GPU     int                `json:"gpu"`
	Calls   uint64             `json:"calls"`
	Ended   uint64             `json:"ended"` // of these, as far as known
	Last    []watchedOperation `json:"last"`  // latest last
	Verdict string             `json:"verdict,omitempty"`
	SaidAt  *time.Time         `json:"verdict_time,omitempty"`
}

type watchedOperation struct {
	Text   string    `json:"operation"`
	Stream uint64    `json:"stream"`
	Called time.Time `json:"called"`
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
		all, err := o.look(pids)
		if err != nil {
			return exit.With(exit.NotDone, err)
		}
		if o.format == "json" {
			e := json.NewEncoder(o.out)
			e.SetIndent("", "  ")
			return e.Encode(struct {
				Schema    string    `json:"schema"`
				Processes []watched `json:"processes"`
			}{"assay.watch/1", all})
		}
		if live {
			fmt.Fprint(plain.Raw(o.out), "\x1b[H\x1b[2J") // clear the screen
		}
		writeWatched(o.out, all, time.Now())
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

// look reads the recorders of the given processes, or of all.
func (o *watchOptions) look(pids []int) (all []watched, err error) {
	named := len(pids) > 0
	if !named {
		pids = flight.Processes()
	}
	for _, pid := range pids {
		if o.job != "" && !ofJob(pid, o.job) {
			continue
		}
		found, err := flight.Read(pid)
		if err != nil {
			if !named { // the process has exited meanwhile
				continue
			}
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		all = append(all, o.watched(pid, found))
	}
	switch {
	case len(all) > 0:
		return all, nil
	case o.job != "":
		return nil, fmt.Errorf("no process of job %s on this machine has a flight recorder: its programs do not run on assay's engine, or it runs elsewhere", o.job)
	}
	return nil, errors.New("no process on this machine has a flight recorder that can be read: no program runs on assay's engine, or it is another user's")
}

func (o *watchOptions) watched(pid int, found []flight.Snapshot) watched {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	w := watched{PID: pid, Command: strings.TrimSpace(string(name)), State: flight.StateOf(pid), Communicators: []watchedCommunicator{}}
	for _, s := range found {
		c := watchedCommunicator{Name: s.Name, Rank: s.Rank, Size: s.Size, GPU: s.Device, Calls: s.Calls, Ended: s.Ended, Last: []watchedOperation{}, Verdict: s.Said}
		if s.Said != "" {
			c.SaidAt = &s.SaidAt
		}
		for _, e := range s.Last[max(0, len(s.Last)-o.last):] {
			c.Last = append(c.Last, watchedOperation{coll.Operation(e), e.Stream, e.At})
		}
		w.Communicators = append(w.Communicators, c)
	}
	return w
}

// ofJob reports whether a process belongs to a Slurm job.
func ofJob(pid int, job string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(strings.Split(string(b), "\x00"), "SLURM_JOB_ID="+job)
}

// writeWatched prints a line for each communicator, and further lines for its verdict and
// for operations before the last one.
func writeWatched(out io.Writer, all []watched, now time.Time) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PID\tCOMMAND\tSTATE\tCOMMUNICATOR\tRANK\tGPU\tCALLS\tENDED\tLAST OPERATION\tCALLED")
	for _, p := range all {
		for _, c := range p.Communicators {
			last, ago := "none", ""
			if n := len(c.Last); n > 0 {
				last, ago = c.Last[n-1].Text, since(now, c.Last[n-1].Called)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d of %d\t%d\t%d\t%d\t%s\t%s\n", p.PID, plain.Line(p.Command), p.State, plain.Line(c.Name), c.Rank, c.Size, c.GPU, c.Calls, c.Ended, last, ago)
			for i := len(c.Last) - 2; i >= 0; i-- {
				fmt.Fprintf(w, "\t\t\t\t\t\t\t\t%s\t%s\n", c.Last[i].Text, since(now, c.Last[i].Called))
			}
		}
	}
	_ = w.Flush()
	for _, p := range all {
		for _, c := range p.Communicators {
			if c.Verdict != "" {
				fmt.Fprintf(out, "\ncommunicator %q, %s: %s\n", c.Name, since(now, *c.SaidAt), plain.Line(c.Verdict))
			}
		}
	}
}

// since formats how long ago something was.
func since(now, at time.Time) string {
	return now.Sub(at).Round(100*time.Millisecond).String() + " ago"
}
