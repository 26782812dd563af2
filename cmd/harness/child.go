package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/harness/suite"
)

// How a child of certify ends when its time is up: it is asked, so that it can
// put things in order, and killed some time later.
const (
	childEnds  = 5 * time.Second
	childLimit = time.Minute // for identify
)

// childProgram is this program; tests have others.
var childProgram = "/proc/self/exe"

// runChild runs a command of this program as a process of its own, and tells what
// it says on stderr. Whatever started this one, the child is no rank of that job.
func runChild(ctx context.Context, args ...string) (node.Output, error) {
	return runChildIn(ctx, alone(os.Environ()), args...)
}

// alone makes a process find itself as torchrun's only one, which every launcher
// goes behind.
func alone(environ []string) []string {
	return append(environ, "TORCHELASTIC_RUN_ID=alone", "TORCHELASTIC_RESTART_COUNT=0", "RANK=0", "WORLD_SIZE=1",
		"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1")
}

// runChildIn is runChild with an environment of the child's own. NAME=VALUE before
// the command come to it.
func runChildIn(ctx context.Context, environ []string, args ...string) (node.Output, error) {
	// A parent's death, of which the child is told, is that of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for len(args) > 0 && strings.Contains(args[0], "=") {
		environ, args = append(environ, args[0]), args[1:]
	}
	var out limited
	said := &lines{tell: func(text string) { suite.Tell(ctx, text) }}
	cmd := exec.CommandContext(ctx, childProgram, args...)
	cmd.Env = environ
	cmd.Args[0] = "harness" // whatever name this one was called by
	cmd.Stdout, cmd.Stderr = &out, said
	// A group of its own, so that all of it can be ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = childEnds
	if err := cmd.Start(); err != nil {
		return node.Output{}, err
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // who is left of the group, if anybody
	result := node.Output{Stdout: out.Bytes(), Stderr: said.String()}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return result, context.Cause(ctx)
	case errors.As(err, &exit):
		result.Status = exit.ExitCode()
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			result.Stderr += fmt.Sprintf("\nkilled by signal %d (%v)", s.Signal(), s.Signal())
		}
	case err != nil:
		return result, err
	}
	return result, nil
}

// limited keeps what a report can have at most; more is an error for who writes.
type limited struct{ bytes.Buffer }

const maxReport = 256 << 20

func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxReport {
		return 0, errors.New("a report of more than 256 MiB")
	}
	return l.Buffer.Write(b)
}

// lines keeps the beginning and the end of what is written, and tells each line: a
// crash says what it was first, and then where everybody stood.
type lines struct {
	tell      func(string)
	mu        sync.Mutex
	head, end []byte
	left      int // out, between the two
	line      []byte
}

// halfKept is how many bytes of the beginning, and of the end, are kept.
const halfKept = suite.MaxOutput/2 - 64

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := min(len(b), halfKept-len(l.head))
	l.head = append(l.head, b[:first]...)
	l.end = append(l.end, b[first:]...)
	if n := len(l.end) - halfKept; n > 0 {
		l.end, l.left = l.end[n:], l.left+n
	}
	l.line = append(l.line, b...)
	for {
		i := bytes.IndexByte(l.line, '\n')
		if i < 0 {
			break
		}
		l.tell(strings.TrimSpace(string(l.line[:i])))
		l.line = l.line[i+1:]
	}
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		return string(l.head) + string(l.end)
	}
	return fmt.Sprintf("%s\n[%d bytes]\n%s", l.head, l.left, l.end)
}

// askIdentity runs identify.
func askIdentity(ctx context.Context, run func(context.Context, ...string) (node.Output, error)) (*identity, error) {
	ctx, stop := context.WithTimeoutCause(ctx, childLimit, fmt.Errorf("no answer within %v", childLimit))
	defer stop()
	out, err := run(ctx, "identify")
	id := new(identity)
	switch {
	case err != nil:
		return nil, fmt.Errorf("asking what this machine is: %w", err)
	case out.Status != 0:
		return nil, fmt.Errorf("asking what this machine is: status %d: %s", out.Status, strings.TrimSpace(out.Stderr))
	}
	if err := json.Unmarshal(out.Stdout, id); err != nil {
		return nil, fmt.Errorf("asking what this machine is: %w", err)
	}
	return id, nil
}
