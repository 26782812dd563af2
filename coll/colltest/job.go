package colltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// JobOptions say what Start runs.
type JobOptions struct {
	Program string                  // of Main
	Ranks   int                     // how many processes
	Arg     string                  // passed to each
	Env     []string                // added to the environment
	Prefix  func(rank int) []string // command that runs the rank, such as Net.Prefix; nil: none
	EnvOf   func(rank int) []string // added to one rank's environment; may be nil
}

// A Job is a set of ranks that run as processes.
type Job struct {
	Ranks []*Process
	start time.Time
}

// A Process is one rank.
type Process struct {
	Rank     int
	cmd      *exec.Cmd
	out, err *tail
	done     chan struct{} // closed when the process has ended and its output is complete
	end      time.Time     // valid once done is closed
}

// Start runs ranks as processes of their own. All of them are killed when the test ends, and also
// when the test binary dies.
func Start(t testing.TB, o JobOptions) *Job {
	t.Helper()
	j := &Job{start: time.Now()}
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // ranks may be of other users
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(j.kill)
	for r := range o.Ranks {
		p, err := start(o, Self{Program: o.Program, Rank: r, Size: o.Ranks, Arg: o.Arg, Dir: dir})
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
		j.Ranks = append(j.Ranks, p)
	}
	return j
}

func start(o JobOptions, s Self) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{exe}
	if o.Prefix != nil {
		args = append(slices.Clone(o.Prefix(s.Rank)), exe)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &Process{Rank: s.Rank, cmd: exec.Command(args[0], args[1:]...), out: newTail(), err: newTail(), done: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), o.Env...), selfVar+"="+string(text))
	if o.EnvOf != nil {
		p.cmd.Env = append(p.cmd.Env, o.EnvOf(s.Rank)...)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = 2 * time.Second // a grandchild may keep the pipes open
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		p.end = time.Now()
		close(p.done)
	}()
	return p, nil
}

// Signal sends a signal: SIGKILL for a crash, SIGSTOP for a rank that is slow, SIGINT for Ctrl-C.
// If the process has ended it returns an error.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Await waits until every rank has printed a line, and fails the test if one ends before that or
// the timeout expires.
func (j *Job) Await(t testing.TB, line string, timeout time.Duration) {
	t.Helper()
	deadline := time.After(timeout)
	for _, p := range j.Ranks {
		for {
			there, changed := p.out.has(line)
			if there {
				break
			}
			select {
			case <-changed:
			case <-p.done:
				if there, _ := p.out.has(line); !there {
					t.Fatalf("rank %d ended before it said %q: %v", p.Rank, line, p.result(false))
				}
			case <-deadline:
				t.Fatalf("rank %d has not said %q after %v; its last words:\n%s", p.Rank, line, timeout, strings.Join(slices.Concat(p.out.last(), p.err.last()), "\n"))
			}
		}
	}
}

// A Result says how a rank ended.
type Result struct {
	Rank     int
	Code     int            // exit status; -1 when a signal ended it
	Signal   syscall.Signal // 0 if none did
	TimedOut bool           // it had to be killed; Stderr then contains its goroutines
	End      time.Time
	Stdout   []string // the last lines
	Stderr   []string
}

// Errors returns the lines of standard error in which Main printed a program's error.
func (r Result) Errors() []string {
	var out []string
	for _, line := range r.Stderr {
		if text, ok := strings.CutPrefix(line, "error: "); ok {
			out = append(out, text)
		}
	}
	return out
}

// String formats the result for the text of a failure.
func (r Result) String() string {
	how := fmt.Sprintf("exit status %d", r.Code)
	if r.Signal != 0 {
		how = r.Signal.String()
	}
	if r.TimedOut {
		how += ", because it did not end"
	}
	return fmt.Sprintf("rank %d: %s\n\t%s", r.Rank, how, strings.Join(slices.Concat(r.Stdout, r.Stderr), "\n\t"))
}

func (p *Process) result(timedOut bool) Result {
	r := Result{Rank: p.Rank, Code: -1, TimedOut: timedOut, Stdout: p.out.last(), Stderr: p.err.last(), End: p.end}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Signal = ws.Signal()
	} else {
		r.Code = p.cmd.ProcessState.ExitCode()
	}
	return r
}

// Wait waits until all ranks have ended, but no longer than timeout. Ranks that have not ended by
// then are made to print their goroutines, and killed.
func (j *Job) Wait(timeout time.Duration) []Result {
	deadline := time.Now().Add(timeout)
	late := make([]bool, len(j.Ranks))
	for i, p := range j.Ranks {
		late[i] = !p.endsBy(deadline)
	}
	for i, p := range j.Ranks {
		if late[i] {
			p.Signal(syscall.SIGCONT)
			p.Signal(syscall.SIGQUIT)
		}
	}
	grace := time.Now().Add(3 * time.Second)
	var out []Result
	for i, p := range j.Ranks {
		if !p.endsBy(grace) {
			p.Signal(syscall.SIGKILL)
			<-p.done
		}
		out = append(out, p.result(late[i]))
	}
	return out
}

func (p *Process) endsBy(deadline time.Time) bool {
	select {
	case <-p.done:
	case <-time.After(time.Until(deadline)):
		select {
		case <-p.done: // too, and select took the other
		default:
			return false
		}
	}
	return true
}

func (j *Job) kill() {
	for _, p := range j.Ranks {
		p.Signal(syscall.SIGKILL)
	}
	for _, p := range j.Ranks {
		<-p.done
	}
}

// Clean returns an error unless the rank ended by itself with status 0.
func (r Result) Clean() error {
	if r.Code != 0 || r.TimedOut {
		return errors.New(r.String())
	}
	return nil
}
