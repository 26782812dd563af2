package colltest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// selfVar is the environment variable with the Self of a process that Start has created.
const selfVar = "ASSAY_COLLTEST_SELF"

// A Self identifies a rank that is a process of its own.
type Self struct {
	Program string // the program of Main that it runs
	Rank    int
	Size    int
	Arg     string // from JobOptions
	Dir     string // directory that only the ranks of the job share
}

// Main is called by TestMain of a package with tests that call Start. In the test binary itself
// it runs the tests. In a process of a job it runs the program of that name; if the program
// returns an error, it is printed to standard error and the exit status is 1. Main does not
// return.
func Main(m *testing.M, programs map[string]func(Self) error) {
	text := os.Getenv(selfVar)
	if text == "" {
		os.Exit(m.Run())
	}
	var s Self
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fatal(fmt.Errorf("%s: %w", selfVar, err))
	}
	program := programs[s.Program]
	if program == nil {
		fatal(fmt.Errorf("colltest: Main knows no program %q", s.Program))
	}
	if err := program(s); err != nil {
		fatal(err)
	}
	os.Exit(0)
}

func fatal(err error) {
	fmt.Fprintf(os.Stderr, "error: %v\n", err)
	os.Exit(1)
}

// Say writes a line to standard output, where Job.Await and Result find it.
func (s Self) Say(format string, a ...any) {
	fmt.Printf(format+"\n", a...)
}

// Publish leaves data for the other ranks of the job under a name.
func (s Self) Publish(name string, data []byte) error {
	tmp := filepath.Join(s.Dir, fmt.Sprintf(".%s.%d", name, s.Rank))
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(s.Dir, name)) // readers see all of it or nothing
}

// Await returns what a rank has published under a name, as soon as it has.
func (s Self) Await(ctx context.Context, name string) ([]byte, error) {
	for {
		data, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err == nil || !os.IsNotExist(err) {
			return data, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %q to be published: %w", name, context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
}
