package main

import (
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/platform"
)

type platformOptions struct {
	format, topo, root string
	host               int
	stderr             io.Writer
}

func platformCommand(out, errOut io.Writer) *cli.Command {
	o := platformOptions{stderr: errOut}
	return &cli.Command{
		Name:  "platform",
		Usage: "identify the machine, and show what it should reach",
		Description: "Recognises GPUs, the links between them, RDMA devices and cloud instances, finds the nearest platform of the\n" +
			"hardware database and how the machine differs from it, and lists what each part should reach: the hardware's\n" +
			"peak, what others measured, and from where on it passes, each with its source. What nobody published is\n" +
			"measured and not judged. docs/platform.md has the rules.",
		Flags: []cli.Flag{
			grammar.Format(&o.format, "text", "json"),
			&cli.StringFlag{Name: "topo", Destination: &o.topo, Usage: "read the machine from `FILE`, written by harness show topology --dump or by NCCL (NCCL_TOPO_DUMP_FILE)"},
			&cli.IntFlag{Name: "host", Destination: &o.host, Usage: "of a file with several hosts, as dumps of an NVLink domain are: the `N`th, from 1"},
			&cli.StringFlag{Name: "root", Value: "/", Destination: &o.root, Usage: "read sys and proc below `DIR`, without asking the driver"},
		},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if o.topo != "" && c.IsSet("root") {
				return exit.Usagef("--topo and --root both say which machine; give one of them")
			}
			return o.run(out, os.Getenv)
		},
	}
}

func (o *platformOptions) run(out io.Writer, getenv func(string) string) error {
	db, err := platform.Load()
	if err != nil {
		return err
	}
	m, err := machine.Read(machine.Options{Root: o.root, File: o.topo, Flag: "--topo", Host: o.host, Places: getenv("NCCL_TOPO_FILE"), Driver: true, Note: noting(o.stderr)})
	if err != nil {
		return err
	}
	return writeReport(db.Describe(m.Platform(), m.Skipped), out, o.format, "")
}
