package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/judge"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/outfile"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/words"
)

const judgeText = `Reads what benchmarks printed, and says for each size whether the hardware should
reach more, by which source, and why it may not:

  harness judge all_reduce.log --platform "8 x H100, 8 x NDR400"
  mpirun ... all_reduce_perf -b 8 -e 8G -f 2 | harness judge --platform h100-8x
  harness judge nvbandwidth.json --format json

It knows nccl-tests, rccl-tests and harness coll, perftest (ib_write_bw and its
kin), nvbandwidth, bandwidthTest, p2pBandwidthLatencyTest and dcgmi diag, as text
or JSON, with the log around them. The platform is a name of the hardware
database, an alias, or GPUs and NICs in plain words; GPUs in one node need none
where the text names them. What cannot be judged is said to be so, with what to
get. Exit status: 0 as it should be, 1 not, 3 it cannot be judged.`

func judgeCommand(out io.Writer) *cli.Command {
	var format, machine, svg string
	return &cli.Command{
		Name: "judge", Usage: "say whether a benchmark's figures are good", ArgsUsage: "[FILE...]",
		Description: judgeText,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "platform", Destination: &machine, Usage: "judge by `PLATFORM`: a name, a file of your own, or such as \"8 x H100, 8 x 400G RoCE\""},
			&cli.StringFlag{Name: "svg", Destination: &svg, Usage: "also draw the sizes into `FILE`"},
			grammar.Format(&format, "text", "json"),
		},
		Action: func(c *cli.Context) error {
			name, err := platform.Use(machine)
			if err != nil {
				return exit.Usagef("--platform: %w", err)
			}
			db, err := platform.Load()
			if err != nil {
				return err
			}
			j := &judge.Judge{DB: db}
			if name != "" {
				if j.Machine, err = judge.ParseMachine(db, name); err != nil {
					return exit.Usagef("--platform: %w", err)
				}
			}
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 * maxExplained))
			if j.Rules, err = judge.Rules(); err != nil {
				return err
			}
			names := c.Args().Slice()
			if len(names) == 0 {
				names = []string{"-"}
			}
			r, err := judgeFiles(j, names)
			if err != nil {
				return err
			}
			if svg != "" {
				var b bytes.Buffer
				if err := cmp.Or(r.WriteSVG(&b), outfile.Write(svg, b.Bytes())); err != nil {
					return err
				}
			}
			if format == "json" {
				err = writeJSON(out, r)
			} else {
				err = r.WriteText(out, cmp.Or(columns(out), 100))
			}
			if code := r.Exit(); err == nil && code != 0 {
				err = exit.With(code, nil)
			}
			return err
		},
	}
}

// judgeFiles judges files as one report.
func judgeFiles(j *judge.Judge, names []string) (*judge.Report, error) {
	var all *judge.Report
	for _, name := range names {
		text, err := readLog(name)
		if err != nil {
			return nil, exit.With(exit.Usage, err)
		}
		if name == "-" {
			name = "stdin"
		}
		r, err := j.File(words.Line(name), text)
		if err != nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("%s: %w", name, err))
		}
		if all == nil {
			all = r
		} else {
			all.Add(r)
		}
	}
	return all, nil
}
