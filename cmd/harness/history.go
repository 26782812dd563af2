package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/harness/registry"
	"github.com/assay-hpc/assay/harness/report"
	"github.com/assay-hpc/assay/harness/suite"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/words"
)

type historyOptions struct {
	since, node, format string
	html                string
	checks, keys        cli.StringSlice
	tolerance           float64
	failOnDrift         bool
	insecure, verbose   bool
	stdout, stderr      io.Writer

	from time.Time // parsed since
}

func historyCommand(out, errOut io.Writer) *cli.Command {
	o := historyOptions{stdout: out, stderr: errOut}
	return &cli.Command{
		Name: "history", Usage: "compare certificates over time, and find what drifted", ArgsUsage: "DIR|REPO|CERTIFICATE...",
		Description: "Reads the certificates, bare or signed, in a directory and those below it (*.json), of machines in a registry's repository,\n" +
			"in an OCI layout (oci:DIR), or single ones as harness verify names them. Each figure of each GPU, port and pair is followed by UUID and\n" +
			"GUID, beside that of its peers: what all of them do, or all machines with a version, is one line. Where nothing drifted it says what\n" +
			"would have been seen. It also names what failed a check, passed it, and failed it again.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "since", Destination: &o.since, Usage: "read certificates finished since `TIME`: 2026-03-01, 2026-03-01T12:00:00Z, or so long ago: 30d, 12h"},
			&cli.StringFlag{Name: "node", Destination: &o.node, Usage: "show machines whose name matches `GLOB`"},
			&cli.StringSliceFlag{Name: "check", Destination: &o.checks, Usage: "show checks whose id matches `GLOB`; may be repeated"},
			&cli.StringSliceFlag{Name: "key", Destination: &o.keys, Usage: "read only certificates that the public `KEY` signed, a PEM file or a service's reference as for harness sign; may be repeated"},
			&cli.Float64Flag{Name: "tolerance", Value: 100 * history.DefaultTolerance, Destination: &o.tolerance, Usage: "ignore changes up to `PERCENT`"},
			&cli.BoolFlag{Name: "fail-on-drift", Destination: &o.failOnDrift, Usage: "exit 1 if something became worse"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Destination: &o.verbose, Usage: "also show each pair"},
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "html", Destination: &o.html, Usage: "also write a page of all checks to `FILE`"},
			&cli.BoolFlag{Name: "insecure", Destination: &o.insecure, Usage: "use plain HTTP to a registry"},
		},
		Action: func(c *cli.Context) error { return o.run(c.Context, c.Args().Slice(), time.Now()) },
	}
}

func (o *historyOptions) validate(args []string, now time.Time) (err error) {
	if len(args) == 0 {
		return exit.Usagef("history wants a directory of certificates, oci:DIR, a REPO in a registry, or single certificates")
	}
	if o.format != "text" && o.format != "json" {
		return exit.Usagef("--format is text or json, not %q", o.format)
	}
	if !(o.tolerance > 0 && o.tolerance < 100) {
		return exit.Usagef("--tolerance %v is not a percentage between 0 and 100", o.tolerance)
	}
	if _, err := path.Match(o.node, ""); err != nil {
		return exit.Usagef("--node %q: %w", o.node, err)
	}
	if o.from, err = parseSince(o.since, now); err != nil {
		return err
	}
	if err := suite.CheckPatterns(o.checks.Value()); err != nil {
		return exit.Usagef("%w (see certify --list)", err)
	}
	return nil
}

// parseSince parses a date, a time, or an age.
func parseSince(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	if n, ok := strings.CutSuffix(s, "d"); ok {
		if days, err := strconv.ParseFloat(n, 64); err == nil && days >= 0 && days < 1e5 {
			return now.Add(-time.Duration(days * 24 * float64(time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, exit.Usagef("--since %q is no date (2026-03-01), no time (2026-03-01T12:00:00Z) and no duration (30d, 12h)", s)
}

func (o *historyOptions) run(ctx context.Context, args []string, now time.Time) error {
	if err := o.validate(args, now); err != nil {
		return err
	}
	keys, err := loadKeys(ctx, o.keys.Value())
	if err != nil {
		return err
	}
	c := history.NewCollector(history.Options{Tolerance: o.tolerance / 100, Wants: o.wantsCheck})
	r := registry.Reader{To: c, Since: o.from, Node: o.node, Keys: keys, Options: registryOptions(o.insecure), Stdin: os.Stdin}
	for _, where := range args {
		if err := r.Read(ctx, where); err != nil {
			return err
		}
	}
	r.Summary(o.stderr)
	h := c.History()
	if h.Certificates == 0 {
		return exit.With(exit.NotDone, fmt.Errorf("none of the %s is a readable certificate of interest", words.Count(r.Seen(), "file")))
	}
	if o.html != "" {
		var page bytes.Buffer
		if err := report.History(&page, "History", h); err != nil {
			return err
		}
		if err := outfile.Write(o.html, page.Bytes()); err != nil {
			return err
		}
	}
	if err := o.write(h); err != nil {
		return err
	}
	if n := h.Worse(); o.failOnDrift && n > 0 {
		return exit.With(exit.Fail, fmt.Errorf("--fail-on-drift: %s for the worse", words.Count(n, "drift")))
	}
	return nil
}

func (o *historyOptions) write(h *history.History) error {
	return writeReport(historyText{h, o.verbose}, o.stdout, o.format, "")
}

// historyText adapts a history to writeReport.
type historyText struct {
	*history.History
	verbose bool
}

func (h historyText) WriteText(w io.Writer) error {
	return h.History.WriteText(w, history.TextOptions{Verbose: h.verbose})
}

func (o *historyOptions) wantsCheck(id string) bool {
	patterns := o.checks.Value()
	return len(patterns) == 0 || suite.CoversAny(patterns, id)
}
