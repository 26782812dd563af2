package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/explain"
	"github.com/assay-hpc/assay/harness/judge"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/infile"
	"github.com/assay-hpc/assay/internal/platform"
	"github.com/assay-hpc/assay/internal/words"
)

const explainText = `Reads logs and outputs that people paste, and says the cause, the line that shows
it, the remedy, how to verify it, and who says so:

  harness explain job-4711.err                    # one file, or several of one job
  kubectl logs POD | harness explain              # standard input
  dmesg | harness explain --format json

It knows NCCL's and RCCL's logs and RAS, PyTorch's watchdog and flight recorder,
kernel logs (Xid, SXid, mlx5, AER), nvidia-smi (topo -m, -q, nvlink -s), ibstat,
NCCL's topology files and nccl.conf, and errors of mpirun, Slurm, torchrun, UCX
and libfabric. Files may be packed by gzip. What the text does not decide is said
to be so, with what to get. Nothing is sent anywhere; secrets and control
characters are not repeated. A benchmark's table without a fault is judged as
harness judge does. Exit status: 0, or 1 if a fault was found, or harness judge's.`

// maxExplained bounds an input of explain.
const maxExplained = 1 << 30

func explainCommand(out io.Writer) *cli.Command {
	var format, hardware string
	return &cli.Command{
		Name: "explain", Usage: "say what a log means, and what to do", ArgsUsage: "[FILE...]",
		Description: explainText,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "platform", Destination: &hardware, Usage: "the machine, as far as it is known: `PLATFORM`, such as p5.48xlarge"},
			grammar.Format(&format, "text", "json"),
		},
		Action: func(c *cli.Context) error {
			names := c.Args().Slice()
			if len(names) == 0 {
				names = []string{"-"}
			}
			// The text is nearly all that there is in memory, and collecting garbage would stop the scan again and again.
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 * maxExplained))
			var files []explain.File
			for _, name := range names {
				text, err := readLog(name)
				if err != nil {
					return exit.With(exit.Usage, err)
				}
				if name == "-" {
					name = "stdin"
				}
				files = append(files, explain.File{Name: words.Line(name), Text: text})
			}
			if hardware != "" {
				files = append(files, explain.File{Name: "--platform", Text: []byte("--platform " + words.Line(hardware) + "\n")})
			}
			rules, err := judge.Rules()
			if err != nil {
				return err
			}
			r := rules.Explain(files)
			if r.Verdict == explain.Fault || r.Verdict == explain.Undecidable && len(r.Causes) > 0 {
				return explained(out, r, format)
			}
			figures, err := measurements(rules, files, hardware, r)
			if err != nil || figures == nil {
				return cmp.Or(err, explained(out, r, format))
			}
			return judged(out, figures, r, format)
		},
	}
}

// measurements judges what benchmarks printed into the texts, where no line of them shows a fault; nil if there is nothing,
// or, where some line is explained, nothing that can be judged.
func measurements(rules *explain.Set, files []explain.File, machine string, log *explain.Report) (*judge.Report, error) {
	db, err := platform.Load()
	if err != nil {
		return nil, err
	}
	j := &judge.Judge{DB: db, Rules: rules}
	if machine != "" {
		j.Machine, _ = judge.ParseMachine(db, machine) // what it does not know is not asked for here
	}
	var all *judge.Report
	causes := len(log.Causes) > 0
	for i, f := range files {
		if !judge.HasFigures(log, i) {
			continue
		}
		own := log
		if len(files) > 1 {
			own = rules.Explain(files[i : i+1])
		}
		r, err := j.Explained(f.Name, f.Text, own)
		switch {
		case err != nil, causes && len(r.Measurements) == 1 && r.Measurements[0].Rows == nil && r.Verdict != judge.Fail: // nothing to judge
		case all == nil:
			all = r
		default:
			all.Add(r)
		}
	}
	return all, nil
}

// judged writes what judge says of the figures, and then what explain says besides.
func judged(out io.Writer, figures *judge.Report, r *explain.Report, format string) error {
	var err error
	if format == "json" {
		err = writeJSON(out, struct {
			*explain.Report
			Figures *judge.Report `json:"figures"`
			Verdict judge.Verdict `json:"verdict"`
			Summary string        `json:"summary"`
		}{r, figures, figures.Verdict, figures.Summary()})
	} else {
		width := cmp.Or(columns(out), 100)
		if err = figures.WriteText(out, width); err == nil && len(r.Causes) > 0 {
			err = r.WriteBeside(out, width)
		}
	}
	if code := figures.Exit(); err == nil && code != 0 {
		err = exit.With(code, nil)
	}
	return err
}

// readLog reads a file as text, also one that gzip has packed.
func readLog(name string) ([]byte, error) {
	text, err := infile.ReadArgument(name, maxExplained)
	switch {
	case err != nil:
		return nil, err
	case bytes.HasPrefix(text, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(bytes.NewReader(text))
		if err == nil {
			text, err = infile.ReadAll(z, name, maxExplained)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return text, err
	case len(text) > 1 && text[0] == 0x80 && text[1] >= 2 && text[1] <= 5:
		return nil, fmt.Errorf("%s: a dump of PyTorch's flight recorder and no text; harness watch %s reads it", name, name)
	}
	return text, nil
}

func explained(out io.Writer, r *explain.Report, format string) error {
	var err error
	if format == "json" {
		err = writeJSON(out, r)
	} else {
		err = r.WriteText(out, cmp.Or(columns(out), 100))
	}
	if err == nil && r.Verdict == explain.Fault {
		err = exit.With(exit.Fail, nil)
	}
	return err
}
