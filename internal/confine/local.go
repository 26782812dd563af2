package confine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Local runs programs on this machine, each below a supervisor. As root, it runs each as a user of
// its own; otherwise as this process's user.
type Local struct {
	// Harness is the program whose command "confine" is [Main]; "": this one.
	Harness string
}

// Self implements [Runner].
func (l Local) Self() string {
	if l.Harness != "" {
		return l.Harness
	}
	self, _ := os.Executable() // fails without /proc
	return self
}

// Run implements [Runner].
func (l Local) Run(ctx context.Context, p Program) Outcome {
	self := l.Self()
	if self == "" {
		return Failure("the harness does not know where it lies: mount /proc in the container")
	}
	p.Limits = p.Limits.until(ctx).orDefault()
	request, err := json.Marshal(p)
	if err != nil {
		return Failure("%v", err)
	}
	var out, problems bytes.Buffer
	cmd := exec.Command(self, "confine")
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C reaches the supervisor through its input
	in, err := cmd.StdinPipe()
	if err != nil {
		return Failure("%v", err)
	}
	if err := cmd.Start(); err != nil {
		return Failure("start the supervisor: %v", err)
	}
	stop := context.AfterFunc(ctx, func() { in.Close() })
	defer stop()
	if _, err := in.Write(request); err != nil {
		in.Close()
	}
	defer in.Close()
	if err := cmd.Wait(); err != nil {
		return Failure("the supervisor: %v: %s", err, strings.TrimSpace(problems.String()))
	}
	return ReadOutcome(&out, p.Limits)
}

// ReadOutcome reads what a supervisor wrote.
func ReadOutcome(r io.Reader, l Limits) (o Outcome) {
	if err := json.NewDecoder(io.LimitReader(r, outcomeSize(l))).Decode(&o); err != nil {
		return Failure("the supervisor's answer: %v", err)
	}
	return o
}

// outcomeSize is the most that an outcome takes as JSON: output in base64, and room for the rest.
func outcomeSize(l Limits) int64 { return int64(l.orDefault().Output)*4/3 + 64<<10 }

// Total is the time after which the supervisor itself is given up, with the container that it runs
// in.
func (l Limits) Total() time.Duration { return l.orDefault().wall() + 2*time.Minute }

// Describe returns why a program failed, in one line; nil: it ended with status 0.
func (o Outcome) Describe(name string) error {
	switch {
	case o.Failed != "":
		return fmt.Errorf("%s: %s", name, o.Failed)
	case o.Stopped != "":
		return fmt.Errorf("%s was stopped: %s", name, o.Stopped)
	case o.Signal != 0:
		return fmt.Errorf("%s was ended by signal %d (%v)", name, o.Signal, syscall.Signal(o.Signal))
	case o.Status != 0:
		return fmt.Errorf("%s ended with exit status %d", name, o.Status)
	}
	return nil
}
