package diag

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/internal/gpu/driver"
	"github.com/assay-hpc/assay/internal/result"
)

// An Event reports that a test begins, makes progress, or ends.
type Event struct {
	Test        Test
	Done, Total int // number of tests
	Text        string
	Verdict     result.Verdict // at the end
}

// A Runner starts children.
type Runner struct {
	// Command returns the program that runs as the child of a test. It must call Child with this
	// name.
	Command func(ctx context.Context, name string) *exec.Cmd
	Observe func(Event) // may be nil
}

// ErrGPUs is the error for requested GPUs that do not exist.
var ErrGPUs = errors.New("no such GPU")

// listLimit is the time limit for listing the GPUs: after a boot, without persistence mode, each
// takes some seconds.
const listLimit = 2 * time.Minute

// Run runs a plan, and returns the tested GPUs with a report that has only the results. It returns
// driver.ErrNoDriver or ErrGPUs if there is nothing to test. If the context ends the run, it still
// returns a report, with the tests done so far.
func (r *Runner) Run(ctx context.Context, p Plan) (*result.Report, []GPU, error) {
	all, err := r.list(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, i := range p.GPUs {
		if !slices.ContainsFunc(all, func(g GPU) bool { return g.Index == i }) {
			return nil, nil, fmt.Errorf("%w: %d of %d", ErrGPUs, i, len(all))
		}
	}
	gpus := slices.DeleteFunc(all, func(g GPU) bool { return p.GPUs != nil && !slices.Contains(p.GPUs, g.Index) })
	report := new(result.Report)
	for i, t := range p.Tests {
		if err := context.Cause(ctx); err != nil {
			return report, gpus, err
		}
		e := Event{Test: t, Done: i, Total: len(p.Tests)}
		r.observe(e)
		res := r.test(ctx, &p, e)
		report.Results = append(report.Results, res)
		e.Done, e.Verdict = i+1, res.Verdict
		r.observe(e)
	}
	return report, gpus, context.Cause(ctx)
}

func (r *Runner) observe(e Event) {
	if r.Observe != nil {
		r.Observe(e)
	}
}

func (r *Runner) list(ctx context.Context) ([]GPU, error) {
	ctx, stop := context.WithTimeout(ctx, listLimit)
	defer stop()
	var got message
	output, err := r.child(ctx, ListGPUs, nil, func(m message) { got = m })
	switch {
	case got.Missing != "":
		return nil, &missingError{got.Missing}
	case err != nil:
		return nil, fmt.Errorf("listing the GPUs: %w%s", err, tail(output))
	}
	return got.GPUs, nil
}

// A missingError is a child's message that there are no GPUs.
type missingError struct{ text string }

func (e *missingError) Error() string { return e.text }

func (e *missingError) Unwrap() error { return driver.ErrNoDriver }

// test runs one test in a child. It returns a result even if the child fails.
func (r *Runner) test(ctx context.Context, p *Plan, e Event) result.Result {
	limit := p.Longest(e.Test)
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out: it was not done within %v", limit))
	defer stop()
	begin := time.Now()
	var res *result.Result
	last := ""
	output, err := r.child(ctx, e.Test.Name, request{p.GPUs, p.values(e.Test), p.Limits}, func(m message) {
		if m.Result != nil {
			res = m.Result
			return
		}
		last, e.Text = m.Progress, m.Progress
		r.observe(e)
	})
	if res != nil && err == nil {
		return *res
	}
	// A result that the child has already sent counts, even if the child then fails.
	if res == nil {
		res = &result.Result{ID: e.Test.Name, Title: Title(e.Test), Seconds: time.Since(begin).Seconds()}
	}
	if err == nil {
		err = errors.New("it ended without a result")
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if res.Verdict != result.Fail {
		res.Verdict, res.Remedy = result.Error, ""
	}
	res.Reason = err.Error()
	if last != "" {
		res.Reason += " (at " + last + ")"
	}
	res.Output = output
	return *res
}

// maxOutput is the number of bytes of a child's standard error that are stored.
const maxOutput = 4 << 10

// killDelay is how long a killed child may take to exit. A child that hangs in the driver may never
// exit: it is abandoned.
const killDelay = 10 * time.Second

// child runs a child until it exits, and returns what it wrote to its standard error.
func (r *Runner) child(ctx context.Context, name string, q any, each func(message)) (output string, err error) {
	// Pdeathsig is sent when the thread that started the child exits, so keep that thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := r.Command(ctx, name)
	in, err := json.Marshal(q)
	if err != nil {
		return "", err
	}
	said := new(crashOutput)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), said
	// The child has its own process group, so that the whole group can be killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	to, ended := make(chan message), make(chan error, 1)
	lines := (<-chan message)(to)
	go func() {
		err := messages(pipe, to)
		if err != nil {
			stop()
		}
		ended <- errors.Join(err, cmd.Wait())
	}()
	told, late := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case m, ok := <-lines:
			if !ok {
				lines = nil
				continue
			}
			each(m)
		case err := <-ended:
			return said.String(), err
		case <-told:
			told, late = nil, time.After(2*killDelay)
		case <-late:
			go drain(to)
			return said.String(), errors.New("it cannot be killed")
		}
	}
}

// drain consumes the messages of an abandoned child, so that their reader can finish.
func drain(lines <-chan message) {
	for range lines {
	}
}

// messages reads a child's lines, up to the first one that is not a message.
func messages(in io.Reader, to chan<- message) error {
	defer close(to)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("it wrote %.200q: %w", lines.Text(), err)
		}
		to <- m
	}
	return lines.Err()
}

// crashOutput stores the beginning and the end of what is written to it: a crash first prints its cause,
// and at the end the state of all threads.
type crashOutput struct {
	mu        sync.Mutex
	head, end []byte
	left      int // number of bytes dropped between the two
}

func (w *crashOutput) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	first := min(len(b), maxOutput/2-len(w.head))
	w.head, b = append(w.head, b[:first]...), b[first:]
	w.end = append(w.end, b...)
	if more := len(w.end) - maxOutput/2; more > 0 {
		w.end, w.left = w.end[more:], w.left+more
	}
	return n, nil
}

func (w *crashOutput) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 {
		return string(w.head) + string(w.end)
	}
	return fmt.Sprintf("%s\n[%d bytes]\n%s", w.head, w.left, w.end)
}

func tail(output string) string {
	if output == "" {
		return ""
	}
	return "; it wrote: " + output
}
