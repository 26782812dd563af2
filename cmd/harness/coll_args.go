package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/internal/getopt"
)

// perfProgram reports whether a program's name is one of nccl-tests' (a suffix after
// "_perf" is allowed, as in nccl-tests), and returns its operation, "" if it is unknown.
func perfProgram(argv0 string) (op string, ok bool) {
	name := filepath.Base(argv0)
	op, _, ok = strings.Cut(name, "_perf")
	if !ok {
		return "", false
	}
	for _, c := range perf.Collectives() {
		if c == op {
			return op, true
		}
	}
	return "", true
}

// runPerf is the program under one of nccl-tests' names. Where nccl-tests and the harness
// differ, it uses the messages and exit statuses of nccl-tests.
func runPerf(ctx context.Context, op string, args []string, out, errOut io.Writer) int {
	name := filepath.Base(args[0])
	if op == "" {
		fmt.Fprintf(errOut, "%s: there is no such test; there are %s\n", name, strings.Join(perf.Collectives(), "_perf ")+"_perf")
		return int(perf.NotImplemented)
	}
	cfg, err := perf.Parse(op, name, args[1:])
	if err == nil {
		var res *perf.Result
		if res, err = runColl(ctx, cfg, out, errOut); err == nil {
			return int(res.Status)
		}
	}
	return perfStatus(name, cfg, err, out, errOut)
}

// perfStatus explains an error as nccl-tests does.
func perfStatus(name string, cfg perf.Config, err error, out, errOut io.Writer) int {
	var usage *perf.UsageError
	var f *perf.Failure
	switch {
	case errors.Is(err, getopt.ErrHelp):
		fmt.Fprint(out, perf.Usage(name))
		return int(perf.OK)
	case errors.As(err, &usage) && usage.Option:
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
		fmt.Fprintf(out, "invalid option '?'\n%s", perf.Usage(name))
		return usage.Status
	case errors.As(err, &usage):
		fmt.Fprintln(errOut, usage)
		return usage.Status
	case errors.As(err, &f):
		host, _ := os.Hostname()
		host, _, _ = strings.Cut(host, ".")
		fmt.Fprint(errOut, f.Lines(host, os.Getpid(), cfg.Timeout))
		return int(f.Status)
	}
	fmt.Fprintf(errOut, "%s: %v\n", name, err)
	return int(perf.EngineError)
}
