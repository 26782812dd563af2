package node

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

	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/host/machine"
)

// When its time is up, a child of certify gets SIGTERM, so that it can clean up, and is
// killed after childEnds.
const (
	childEnds     = 5 * time.Second
	identifyLimit = 2 * time.Minute // drivers that start take most of it
)

// childProgram is this program; tests replace it.
var childProgram = "/proc/self/exe"

// RunChild runs a command of this program in a child process, and reports what the child
// writes to stderr. Whichever launcher started this process, the child is not a rank of
// that job.
func RunChild(ctx context.Context, args ...string) (Output, error) {
	return RunChildIn(ctx, onlyRank(os.Environ()), args...)
}

// onlyRank adds variables with which a process sees itself as the only one of a torchrun
// job. torchrun's variables take precedence over those of other launchers.
func onlyRank(environ []string) []string {
	return append(environ, "TORCHELASTIC_RUN_ID=alone", "TORCHELASTIC_RESTART_COUNT=0", "RANK=0", "WORLD_SIZE=1",
		"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1")
}

// RunChildIn is RunChild with an environment for the child. NAME=VALUE arguments before
// the command are added to it.
func RunChildIn(ctx context.Context, environ []string, args ...string) (Output, error) {
	// Pdeathsig fires when the parent's thread dies, so stay on this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for len(args) > 0 && strings.Contains(args[0], "=") {
		environ, args = append(environ, args[0]), args[1:]
	}
	var out limited
	said := &lines{tell: func(text string) { suite.Tell(ctx, text) }}
	cmd := exec.CommandContext(ctx, childProgram, args...)
	cmd.Env = environ
	cmd.Args[0] = "harness" // whatever name this process was started under
	cmd.Stdout, cmd.Stderr = &out, said
	// A process group of its own, so that all of the group can be signaled.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = childEnds
	if err := cmd.Start(); err != nil {
		return Output{}, err
	}
	err := cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes left in the group, if any
	result := Output{Stdout: out.Bytes(), Stderr: said.String()}
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

// limited buffers up to the largest allowed report. Writing more is an error.
type limited struct{ bytes.Buffer }

const maxReport = 256 << 20

func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxReport {
		return 0, errors.New("a report of more than 256 MiB")
	}
	return l.Buffer.Write(b)
}

// lines stores the beginning and the end of what is written, and passes each line to
// tell. A crash prints its cause first, and stacks after it.
type lines struct {
	tell      func(string)
	mu        sync.Mutex
	head, end []byte
	left      int // bytes left out between the two
	line      []byte
}

// halfKept is how many bytes of the beginning, and of the end, are stored.
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

// AskIdentity runs "harness identify" in a child process: drivers may hang, and this process must not
// keep the GPUs from being reset.
func AskIdentity(ctx context.Context, run runner) (*machine.Identity, error) {
	ctx, stop := context.WithTimeoutCause(ctx, identifyLimit, fmt.Errorf("no answer within %v", identifyLimit))
	defer stop()
	out, err := run(ctx, "identify")
	id := new(machine.Identity)
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

// Identify is AskIdentity. If that fails, it returns an identity with the machine's name and the reason.
func Identify(ctx context.Context, run runner) *machine.Identity {
	id, err := AskIdentity(ctx, run)
	if err != nil {
		return machine.Unidentified(err)
	}
	return id
}
