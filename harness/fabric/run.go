package fabric

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// An Output is what a command of the harness wrote, and how it ended.
type Output struct {
	Stdout []byte
	Stderr string // the end of it
	Status int    // exit status; below 0: it was killed
}

// A Runner runs a command of the harness to its end, with an environment.
type Runner func(ctx context.Context, environ []string, args ...string) (Output, error)

// A place is what a process of a command must know of the job that it is in.
type place struct {
	Rank  int    `json:"rank"`
	Size  int    `json:"size"`
	First string `json:"first"` // address of rank 0's machine
	Token string `json:"token"` // of this run alone
}

// SilenceVar says how long nothing may be heard of a machine until it is lost, for
// commands that several machines run.
const SilenceVar = "ASSAY_SILENCE"

// environ makes a process find its rank as torchrun's do, which every launcher
// goes behind.
func (p place) environ() []string {
	return append(os.Environ(),
		"TORCHELASTIC_RUN_ID="+p.Token, "TORCHELASTIC_RESTART_COUNT=0", "RANK="+strconv.Itoa(p.Rank), "WORLD_SIZE="+strconv.Itoa(p.Size),
		"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR="+p.First, "MASTER_PORT=1", "ASSAY_JOB_SECRET="+p.Token)
}

// An ending is what a machine says when its process has ended.
type ending struct {
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
}

// maxTries is how often a command is run when machines are lost on the way, and a
// pair is measured that fails.
const maxTries = 3

// Run runs a command of the harness on all machines that are left, as one job.
// What the first one wrote is what came of it, at the first one; where it did not
// end well on another, the error says so. When a machine is lost meanwhile the
// command is ended, and the others run it again.
func (f *Fabric) Run(ctx context.Context, args ...string) (Output, error) {
	for try := 1; ; try++ {
		out, again, err := f.runOnce(ctx, try, false, args)
		if !again {
			return out, err
		}
	}
}

// RunOn is Run of a command that goes on by itself when machines are lost.
func (f *Fabric) RunOn(ctx context.Context, args ...string) (Output, error) {
	out, _, err := f.runOnce(ctx, maxTries, true, args)
	return out, err
}

// broken is how long a command may take to notice that a machine is lost, and to
// say so.
const broken = 2 * time.Second

// whole ends with ctx, and a while after a machine is lost.
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

func (f *Fabric) runOnce(ctx context.Context, try int, on bool, args []string) (out Output, again bool, err error) {
	loss := f.group.NextLoss()
	var took []int // part, at the first machine
	b, err := f.exchange([]byte(addr(f.group.Addr())), func(all [][]byte) ([][]byte, error) {
		took = f.left()
		return f.places(took, string(all[0]))
	})
	if err != nil {
		return out, false, err
	}
	var p place
	if err := json.Unmarshal(b, &p); err != nil {
		return out, false, err
	}
	// Each reaches the first machine in its own way.
	if p.Rank > 0 {
		p.First = addr(f.group.First())
	}
	together, stop := f.UntilGone(ctx)
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
	type decision struct {
		Again bool   `json:"again"`
		Error string `json:"error,omitempty"`
	}
	d, err := ask(f, e, func(all []*ending) (decision, error) {
		err := f.outcome(took, all)
		if err == nil {
			return decision{}, nil
		}
		lost := false
		for _, rank := range took {
			lost = lost || all[rank] == nil
		}
		return decision{Again: lost && try < maxTries && ctx.Err() == nil && len(f.left()) > 1, Error: err.Error()}, nil
	})
	switch {
	case err != nil:
		return out, false, err
	case d.Error != "":
		return out, d.Again, fmt.Errorf("%s", d.Error)
	}
	return out, false, nil
}

// places are those of the machines that take part, by rank.
func (f *Fabric) places(took []int, first string) ([][]byte, error) {
	if len(took) < 2 {
		return nil, errFew
	}
	answers := make([][]byte, f.Size())
	token := rand.Text()
	for i, rank := range took {
		var err error
		if answers[rank], err = json.Marshal(place{i, len(took), first, token}); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// outcome is an error where a command did not end well. Statuses 0 and 1 are a
// report's, and others that nothing is said of. A machine that is lost is one only if the first one's process did not
// do without it.
func (f *Fabric) outcome(took []int, all []*ending) error {
	bad := func(e *ending) bool {
		switch e.Status {
		case 0:
			return e.Error != "" // it was not begun, or ended
		case 1:
			return false
		case 3:
			return e.Error != ""
		}
		return true
	}
	fine := all[0] != nil && !bad(all[0])
	lost := f.Lost()
	for _, rank := range took {
		if all[rank] == nil && !fine {
			return fmt.Errorf("%s was lost meanwhile: %s", f.Name(rank), lost[rank])
		}
	}
	// Whoever says more than that another ended says why.
	for _, rank := range append(took[1:len(took):len(took)], took[0]) {
		if e := all[rank]; e != nil && bad(e) {
			return fmt.Errorf("%s: status %d: %s", f.Name(rank), e.Status, e.Error)
		}
	}
	return nil
}

// UntilGone ends with ctx, and when the first machine is lost.
func (f *Fabric) UntilGone(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	gone := f.group.Context()
	stop := context.AfterFunc(gone, func() { cancel(context.Cause(gone)) })
	return ctx, func() { stop(); cancel(nil) }
}

func lastWords(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimPrefix(lines[len(lines)-1], "harness: ")
}
