package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/getopt"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/words"
)

// collCommand is the collective benchmark. Its flags are nccl-tests', which
// package perf parses: urfave/cli supports neither -b8 nor base-0 integers.
func collCommand(out, errOut io.Writer) *cli.Command {
	return &cli.Command{
		Name: "coll", Usage: "measure and verify collectives (compatible with nccl-tests)", ArgsUsage: "OP [FLAG...]",
		SkipFlagParsing: true,
		BashComplete:    func(c *cli.Context) { completeColl(out, c.Args().Slice()) },
		Action: func(c *cli.Context) error {
			return collBench(c.Context, c.Args().Slice(), out, errOut)
		},
	}
}

// completeColl offers operations first, and then flags.
func completeColl(out io.Writer, args []string) {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(out, strings.Join(perf.FlagNames(), "\n"))
		return
	}
	fmt.Fprintln(out, strings.Join(perf.Collectives(), "\n"))
}

// collBench runs "harness coll OP FLAG…".
func collBench(ctx context.Context, args []string, out, errOut io.Writer) error {
	if len(args) == 0 || args[0] == "-h" || args[0] == "--help" {
		_, err := fmt.Fprintf(out, "Operations: %s\n            tune (measures which algorithms are fastest; see harness coll tune --help)\n            table FILE... (what --versus measured, from --format json, as Markdown)\n            --versus best (all operations beside NCCL, in about a minute)\n\n%s", strings.Join(perf.Collectives(), " "), perf.Usage("harness coll OP [FLAG...]"))
		return err
	}
	op := args[0]
	if strings.HasPrefix(op, "-") {
		return collEvery(ctx, args, out, errOut)
	}
	if op == "tune" {
		return collTune(ctx, args[1:], out, errOut)
	}
	if op == "table" {
		return collTable(args[1:], out)
	}
	if n := words.Nearest(op, perf.Collectives()); n != op {
		return exit.Usagef("there is no operation %q; did you mean %q?", op, n)
	}
	cfg, err := perf.Parse(op, "", args[1:])
	var usage *perf.UsageError
	switch {
	case errors.Is(err, getopt.ErrHelp):
		_, err := io.WriteString(out, perf.Usage("harness coll "+op))
		return err
	case errors.As(err, &usage):
		return exit.Usagef("coll %s: %w (see harness coll %s --help)", op, err, op)
	case err != nil:
		return err
	}
	res, err := runColl(ctx, cfg, out, errOut)
	if err != nil {
		return collError(err)
	}
	return verdict(res)
}

// collEvery is "harness coll --versus ENGINE": it compares all collectives, and draws how much faster
// ours are.
func collEvery(ctx context.Context, flags []string, out, errOut io.Writer) error {
	cfg, err := perf.Parse(perf.Collectives()[0], "", flags)
	switch {
	case err != nil:
		return collError(err)
	case cfg.Versus == "":
		return exit.Usagef("coll: name an operation first (harness coll all_reduce ...), or compare all of them (harness coll --versus best)")
	}
	bar := newStatusLine(errOut)
	docs, err := world.Every(ctx, flags, func(op string) { bar.show("%s", op) }, errOut)
	bar.clear()
	if err != nil {
		return collError(err)
	}
	r := perf.NewRatios(docs)
	if cfg.Output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(docs)
	} else {
		err = r.Text(out)
	}
	if bad := r.Wrong(); err == nil && bad != nil {
		return exit.With(exit.Fail, fmt.Errorf("coll: %w", bad))
	}
	return err
}

// maxComparison is the largest comparison that is read, in bytes.
const maxComparison = 64 << 20

// collTable is "harness coll table": it prints comparisons as tables.
func collTable(files []string, out io.Writer) error {
	if len(files) == 0 {
		return exit.Usagef("coll table needs the JSON of at least one comparison: harness coll OP --versus … --format json > FILE")
	}
	for i, file := range files {
		b, err := infile.ReadArgument(file, maxComparison)
		if err != nil {
			return exit.Usagef("coll table: %w", err)
		}
		d, err := perf.ReadDocument(bytes.NewReader(b))
		if err != nil {
			return exit.Usagef("coll table: %s: %w", file, err)
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := d.Markdown(out); err != nil {
			return err
		}
	}
	return nil
}

// runColl opens this process's ranks, runs the benchmark on them, and closes
// them.
func runColl(ctx context.Context, cfg perf.Config, out, errOut io.Writer) (*perf.Result, error) {
	w, err := world.Open(ctx, cfg, errOut)
	if err != nil {
		return nil, err
	}
	res, err := perf.Run(ctx, cfg, w.World, perf.Streams{Out: out, Err: errOut, Terminal: isTerminal(errOut), Environ: os.Environ()})
	closed := w.Close()
	if err == nil { // otherwise an error of Close adds nothing
		err = closed
	}
	return res, err
}

// collError gives an error of a run the exit status that the harness's commands use.
func collError(err error) error {
	var f *perf.Failure
	var usage *perf.UsageError
	if errors.As(err, &usage) || errors.As(err, &f) && f.Status == perf.InvalidUsage {
		return exit.Usagef("coll: %w", err)
	}
	return fmt.Errorf("coll: %w", err)
}

// verdict fails if data was wrong, or slower than required.
func verdict(res *perf.Result) error {
	if err := res.Wrong(); err != nil {
		return exit.With(exit.Fail, fmt.Errorf("coll: %w", err))
	}
	return nil
}
