package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asChild has a shell script in this program's place.
func asChild(t *testing.T, script string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "child")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	old := childProgram
	childProgram = name
	t.Cleanup(func() { childProgram = old })
}

func TestRunChild(t *testing.T) {
	for name, tt := range map[string]struct {
		script, out, err string
		status           int
	}{
		"report":  {"echo \"{$1}\"; echo at work >&2; exit 1", "{diag}\n", "at work\n", 1},
		"crash":   {"kill -SEGV $$", "", "\nkilled by signal 11 (segmentation fault)", -1},
		"refuses": {"echo harness: no >&2; exit 3", "", "harness: no\n", 3},
	} {
		asChild(t, tt.script)
		out, err := RunChild(t.Context(), "diag", "-r", "memory")
		if err != nil || string(out.Stdout) != tt.out || out.Stderr != tt.err || out.Status != tt.status {
			t.Errorf("%s: %q, %q, %d, %v", name, out.Stdout, out.Stderr, out.Status, err)
		}
	}
	childProgram = filepath.Join(t.TempDir(), "nothing")
	if _, err := RunChild(t.Context(), "diag"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestRunChildEnded: with its time, all that the child started ends.
func TestRunChildEnded(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	asChild(t, "sleep 600 & echo $! >"+pids+"; echo $$ >>"+pids+"; wait")
	ctx, stop := context.WithCancelCause(t.Context())
	go func() {
		for {
			if b, err := os.ReadFile(pids); err == nil && strings.Count(string(b), "\n") == 2 {
				stop(errors.New("enough"))
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := RunChild(ctx, "diag"); err == nil || err.Error() != "enough" {
		t.Errorf("%v; want the cause", err)
	}
	b, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		// The kernel takes a moment to carry out a kill.
		for gone := false; !gone; time.Sleep(time.Millisecond) {
			b, err := os.ReadFile("/proc/" + text + "/stat")
			gone = err != nil || strings.Contains(string(b), ") Z ") || unix.Kill(pid, 0) != nil
		}
	}
}

func TestAskIdentity(t *testing.T) {
	answer := func(out string, status int, err error) runner {
		return func(context.Context, ...string) (Output, error) {
			return Output{Stdout: []byte(out), Status: status}, err
		}
	}
	for name, run := range map[string]runner{
		"status":    answer("", 3, nil),
		"no JSON":   answer("Bus error", 0, nil),
		"not begun": answer("", 0, errors.New("no program")),
	} {
		id := Identify(t.Context(), run)
		if id.Node.Name == "" || len(id.Node.Identity) == 0 || !strings.Contains(id.Facts.Why, "asking what this machine is") {
			t.Errorf("%s: %+v", name, id)
		}
	}
}
