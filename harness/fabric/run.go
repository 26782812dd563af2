package fabric

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
)

// An Output is what a command of the harness wrote, and its exit status.
type Output struct {
	Stdout []byte
	Stderr string // the last part of it
	Status int    // exit status; below 0: killed by a signal
}

// A Runner runs a command of the harness with the given environment and waits for it.
type Runner func(ctx context.Context, environ []string, args ...string) (Output, error)

// A jobPosition describes a process's position in the job.
type jobPosition struct {
	Rank  int    `json:"rank"`
	Size  int    `json:"size"`
	First string `json:"first"` // address of the first machine
	Token string `json:"token"` // unique to this run
}

// SilenceVar is the environment variable with the time that a machine may stay silent until it is
// lost, for commands that run on several machines.
const SilenceVar = "ASSAY_SILENCE"

// environ sets the variables of torchrun, from which the process takes its rank. They have priority
// over those of every other launcher.
func (p jobPosition) environ() []string {
	return append(os.Environ(),
		"TORCHELASTIC_RUN_ID="+p.Token, "TORCHELASTIC_RESTART_COUNT=0", "RANK="+strconv.Itoa(p.Rank), "WORLD_SIZE="+strconv.Itoa(p.Size),
		"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR="+p.First, "MASTER_PORT=1", "ASSAY_JOB_SECRET="+p.Token)
}

// An ending is what a machine reports when its process has ended.
type ending struct {
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
}

// maxTries bounds the attempts: of a command while machines are lost, and of a pair's measurement
// that fails.
const maxTries = 3

// Run runs a command of the harness on all remaining machines, as one job. On the first machine it
// returns the output of its own process, and its deputies get that, too; the error reports failures
// on other machines. When a machine is lost during the run, the command is stopped and the remaining
// machines run it again.
func (f *Fabric) Run(ctx context.Context, args ...string) (Output, error) {
	for try := 1; ; try++ {
		d, err := f.runOnce(ctx, try, false, args)
		if err != nil || !d.Again {
			return d.output(err)
		}
	}
}

// RunOn is Run for a command that itself continues when machines are lost. It is run again if the
// first machine is.
func (f *Fabric) RunOn(ctx context.Context, args ...string) (Output, error) {
	d, err := f.runOnce(ctx, maxTries, true, args)
	return d.output(err)
}

// A decision is the end of a command on all machines.
type decision struct {
	Again bool   `json:"again"`
	Error string `json:"error,omitempty"`
	// Output is that of the first machine's process. On machines that are not its deputies it is
	// that of their own process.
	Output *Output `json:"output,omitempty"`
}

func (d decision) output(err error) (out Output, _ error) {
	if d.Output != nil {
		out = *d.Output
	}
	if err == nil && d.Error != "" {
		err = errors.New(d.Error)
	}
	return out, err
}

// maxShared is how much of a process's output the deputies get.
const maxShared = bootstrap.MaxBlock / 2

// share returns the answers with a decision: deputies get the first machine's output with it, so
// that what was measured is not lost with that machine.
func (f *Fabric) share(d decision, out Output) ([][]byte, error) {
	short, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	answers := slices.Repeat([][]byte{short}, f.Size())
	d.Output = &out
	long, err := json.Marshal(d)
	if err != nil || len(long) > maxShared {
		return answers, err
	}
	for _, rank := range f.group.Deputies() {
		answers[rank] = long
	}
	return answers, nil
}

// broken is the time in which a command may notice and report by itself that a machine is lost.
const broken = 2 * time.Second

// whole returns a context that ends with ctx, and a while after a machine is lost.
func whole(ctx context.Context, loss <-chan struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-loss:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(broken):
			cancel(errors.New("a machine was lost"))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

func (f *Fabric) runOnce(ctx context.Context, try int, on bool, args []string) (d decision, err error) {
	var own Output
	b, err := f.operation(func() (b []byte, err error) {
		own, b, err = f.attempt(ctx, try, on, args)
		return b, err
	})
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if d.Output == nil {
		d.Output = &own
	}
	return d, err
}

// attempt runs a command once, and returns the output of this machine's process, and the decision.
func (f *Fabric) attempt(ctx context.Context, try int, on bool, args []string) (out Output, b []byte, err error) {
	loss := f.group.NextLoss()
	var took []int // ranks that take part, on the first machine
	b, err = f.exchange([]byte(addr(f.group.Addr())), func(all [][]byte) ([][]byte, error) {
		took = f.left()
		return f.places(took, string(all[f.Rank()]))
	})
	if err != nil {
		return out, nil, err
	}
	var p jobPosition
	if err := json.Unmarshal(b, &p); err != nil {
		return out, nil, err
	}
	// Each machine has its own address for the first one.
	if p.Rank > 0 {
		p.First = addr(f.group.First())
	}
	together, stop := f.untilLost(ctx)
	if !on {
		end := stop
		var broke func()
		together, broke = whole(together, loss)
		stop = func() { broke(); end() }
	}
	out, failed := f.o.Run(together, append(p.environ(), SilenceVar+"="+f.o.Boot.Silence.String()), args...)
	stop()
	e := ending{Status: out.Status}
	switch {
	case failed != nil:
		e.Error = failed.Error()
	case out.Status != 0:
		e.Error = lastWords(out.Stderr)
	}
	if b, err = json.Marshal(e); err != nil {
		return out, nil, err
	}
	b, err = f.exchange(b, func(all [][]byte) ([][]byte, error) {
		endings, err := decoded[ending](all)
		if err != nil {
			return nil, err
		}
		if err := f.verdict(took, endings); err != nil {
			lost := slices.ContainsFunc(took, func(rank int) bool { return endings[rank] == nil })
			return f.share(decision{Again: lost && try < maxTries && ctx.Err() == nil && len(f.left()) > 1, Error: err.Error()}, out)
		}
		return f.share(decision{}, out)
	})
	return out, b, err
}

// places returns the places of the participating machines, by rank.
func (f *Fabric) places(took []int, first string) ([][]byte, error) {
	if len(took) < 2 {
		return nil, errFew
	}
	answers := make([][]byte, f.Size())
	token := rand.Text()
	for i, rank := range took {
		var err error
		if answers[rank], err = json.Marshal(jobPosition{i, len(took), first, token}); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// verdict returns an error if a command failed. Statuses 0 and 1 come with a report. Status 3 is no
// failure either unless it has an error message. A lost machine is a failure only if the first
// machine's process did not succeed without it.
func (f *Fabric) verdict(took []int, all []*ending) error {
	bad := func(e *ending) bool {
		switch e.Status {
		case 0:
			return e.Error != "" // it was not started, or was stopped
		case 1:
			return false
		case 3:
			return e.Error != ""
		}
		return true
	}
	own := all[f.Rank()]
	fine := own != nil && !bad(own)
	lost := f.Lost()
	for _, rank := range took {
		if all[rank] == nil && !fine {
			return fmt.Errorf("%s was lost meanwhile: %s", f.Name(rank), lost[rank])
		}
	}
	// The first machine is last: often it only says that another process ended, but not why.
	for _, rank := range append(took[1:len(took):len(took)], took[0]) { // the lowest rank left is the first
		if e := all[rank]; e != nil && bad(e) {
			return fmt.Errorf("%s: status %d: %s", f.Name(rank), e.Status, e.Error)
		}
	}
	return nil
}

func lastWords(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "harness: ")
}
