package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/harness/suite"
)

// maxCapture limits how much output of a command is captured; the rest is discarded.
const maxCapture = 4 << 20

// killDelay is how long a cancelled command may clean up (mpirun stops its ranks in this time)
// before it is killed.
const killDelay = 2 * time.Second

// notInside is the reason why programs of another root directory are not run.
const notInside = "programs run only inside the image, and its root is another directory here (--root)"

// run runs a program of the image in its environment, without a shell, and returns the combined
// stdout and stderr. The error is one line. When ctx ends, the whole process group is killed.
func run(ctx context.Context, env *suite.Env, extra []string, argv ...string) (string, error) {
	program, err := env.Root.LookPath(argv[0], env.Getenv("PATH"))
	if err != nil {
		return "", err
	}
	var out limited
	cmd := exec.CommandContext(ctx, program)
	cmd.Args, cmd.Env, cmd.Dir = argv, append(env.Environ[:len(env.Environ):len(env.Environ)], extra...), "/"
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	err = cmd.Run()
	if cmd.Process != nil && (ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay)) {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // mostly there is nobody left
	}
	return out.String(), describe(argv[0], err)
}

// describe turns an error of os/exec into a reason.
func describe(program string, err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return fmt.Errorf("%s was ended by signal %d (%v)", program, st.Signal(), st.Signal())
	}
	return fmt.Errorf("%s ended with exit status %d", program, exit.ExitCode())
}

// limited stores the first maxCapture bytes and drops the rest.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxCapture - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
