// Package watch reads the flight recorders of running processes, and shows the last calls of their
// communicators. The processes need not answer.
package watch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/internal/words"
)

// A Process is a process and the calls of its communicators.
type Process struct {
	PID           int            `json:"pid"`
	Command       string         `json:"command"`
	State         flight.State   `json:"state"`
	Communicators []Communicator `json:"communicators"`
}

// A Communicator is a communicator of a process, and its last operations.
type Communicator struct {
	Name    string      `json:"name"`
	Rank    int         `json:"rank"`
	Size    int         `json:"size"`
	GPU     int         `json:"gpu"`
	Calls   uint64      `json:"calls"`
	Ended   uint64      `json:"ended"` // of these, as far as known
	Last    []Operation `json:"last"`  // latest last
	Verdict string      `json:"verdict,omitempty"`
	SaidAt  *time.Time  `json:"verdict_time,omitempty"`
}

// An Operation is a call of a communicator.
type Operation struct {
	Text   string    `json:"operation"`
	Stream uint64    `json:"stream"`
	Called time.Time `json:"called"`
}

// Look reads the recorders of the given processes, or of all. It returns the last operations of
// each communicator, up to a number. If job is not empty, only processes of that Slurm job count.
func Look(pids []int, job string, last int) (all []Process, err error) {
	err = recorders(pids, job, func(pid int, found []flight.Snapshot) { all = append(all, process(pid, found, last)) })
	return all, err
}

// recorders reads the recorders of the given processes, or of all, or of all of a Slurm job.
func recorders(pids []int, job string, of func(pid int, found []flight.Snapshot)) error {
	named := len(pids) > 0
	if !named {
		pids = flight.Processes()
	}
	read := false
	for _, pid := range pids {
		if job != "" && !ofJob(pid, job) {
			continue
		}
		found, err := flight.Read(pid)
		if err != nil {
			if !named { // the process has exited meanwhile
				continue
			}
			return fmt.Errorf("process %d: %w", pid, err)
		}
		of(pid, found)
		read = true
	}
	switch {
	case read:
		return nil
	case job != "":
		return fmt.Errorf("no process of job %s on this machine has a flight recorder: its programs do not run on assay's engine, or it runs elsewhere", job)
	}
	return errors.New("no process on this machine has a flight recorder that can be read: no program runs on assay's engine, or it is another user's")
}

func process(pid int, found []flight.Snapshot, last int) Process {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	w := Process{PID: pid, Command: strings.TrimSpace(string(name)), State: flight.StateOf(pid), Communicators: []Communicator{}}
	for _, s := range found {
		c := Communicator{Name: s.Name, Rank: s.Rank, Size: s.Size, GPU: s.Device, Calls: s.Calls, Ended: s.Ended, Last: []Operation{}, Verdict: s.Said}
		if s.Said != "" {
			c.SaidAt = &s.SaidAt
		}
		for _, e := range s.Last[max(0, len(s.Last)-last):] {
			c.Last = append(c.Last, Operation{hang.Operation(e), e.Stream, e.At})
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

// Write prints a line for each communicator, and further lines for its verdict and for operations
// before the last one.
func Write(out io.Writer, all []Process, now time.Time) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PID\tCOMMAND\tSTATE\tCOMMUNICATOR\tRANK\tGPU\tCALLS\tENDED\tLAST OPERATION\tCALLED")
	for _, p := range all {
		for _, c := range p.Communicators {
			last, ago := "none", ""
			if n := len(c.Last); n > 0 {
				last, ago = c.Last[n-1].Text, since(now, c.Last[n-1].Called)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d of %d\t%d\t%d\t%d\t%s\t%s\n", p.PID, words.Line(p.Command), p.State, words.Line(c.Name), c.Rank, c.Size, c.GPU, c.Calls, c.Ended, last, ago)
			for i := len(c.Last) - 2; i >= 0; i-- {
				fmt.Fprintf(w, "\t\t\t\t\t\t\t\t%s\t%s\n", c.Last[i].Text, since(now, c.Last[i].Called))
			}
		}
	}
	_ = w.Flush()
	for _, p := range all {
		for _, c := range p.Communicators {
			if c.Verdict != "" {
				fmt.Fprintf(out, "\ncommunicator %q, %s: %s\n", c.Name, since(now, *c.SaidAt), words.Line(c.Verdict))
			}
		}
	}
}

// since formats how long ago something was.
func since(now, at time.Time) string {
	return now.Sub(at).Round(100*time.Millisecond).String() + " ago"
}
