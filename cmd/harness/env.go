package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/harness/variables"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/host/netenv"
)

// envOptions are the common options of harness show environment and harness exec, and
// those of env alone.
type envOptions struct {
	root, topo, peers, hostfile string
	host                        int
	netenv.Options

	format string
	export bool
	stderr io.Writer
}

// flags returns the flags of both commands.
func (o *envOptions) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "peers", Destination: &o.peers, Usage: "name the job's other hosts, to choose the control interface that reaches them: `HOST,…`"},
		&cli.StringFlag{Name: "hostfile", Destination: &o.hostfile, Usage: "read the job's hosts from `FILE`, in the format of mpirun and DeepSpeed"},
		&cli.StringFlag{Name: "topo", Destination: &o.topo, Usage: "read the topology from `FILE`, written by harness show topology --dump or by NCCL (NCCL_TOPO_DUMP_FILE)"},
		&cli.IntFlag{Name: "host", Destination: &o.host, Usage: "of a file with several hosts, as dumps of an NVLink domain are: the `N`th, from 1"},
		&cli.StringFlag{Name: "root", Value: "/", Destination: &o.root, Usage: "read sys, proc, dev, etc and opt below `DIR`"},
		&cli.BoolFlag{Name: "gdrcopy", Destination: &o.GDRCopy, Usage: "enable GDRCopy in NCCL"},
		&cli.BoolFlag{Name: "sharp", Destination: &o.SHARP, Usage: "enable SHARP (reductions in switches), where the plugin is installed"},
		&cli.BoolFlag{Name: "no-ib", Destination: &o.NoIB, Usage: "use sockets, without RDMA"},
	}
}

func environmentCommand(out, errOut io.Writer) *cli.Command {
	o := envOptions{stderr: errOut}
	return &cli.Command{
		Name:  "environment",
		Usage: "show the variables that NCCL, UCX, libfabric and Open MPI need here, and why",
		Description: "Looks at network cards, GPUs, interfaces, routes and limits, and prints what to set so that start-up goes over\n" +
			"the right interface and data over the right cards, each with its reason; what is left alone, and why; what is\n" +
			"set already, and whether that contradicts the node. eval \"$(harness show environment --export)\" sets it in a shell,\n" +
			"harness exec for one command. docs/env.md has the rules and their sources.",
		Flags: append([]cli.Flag{
			grammar.Format(&o.format, "text", "json"),
			&cli.BoolFlag{Name: "export", Destination: &o.export, Usage: "print lines for a shell to evaluate"},
		}, o.flags()...),
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if o.export && (c.IsSet("format") || c.IsSet("output")) {
				return exit.Usagef("--export and --format both say in which form; give one of them")
			}
			return o.run(c.Context, out)
		},
	}
}

// envDoc is the document of harness show environment --format json, schema 1.
type envDoc struct {
	Schema int          `json:"schema"`
	Node   *netenv.Node `json:"node"`
	*netenv.Plan
}

func (o *envOptions) run(ctx context.Context, out io.Writer) error {
	node, plan, err := o.plan(ctx, os.Environ())
	if err != nil {
		return err
	}
	switch {
	case o.export:
		for _, w := range plan.Warnings {
			fmt.Fprintf(o.stderr, "harness: %s; remedy: %s\n", w.What, w.Remedy)
		}
		return plan.WriteExport(out)
	case o.format == "json":
		return writeJSON(out, envDoc{Schema: 1, Node: node, Plan: plan})
	}
	return plan.WriteText(out, node)
}

// plan reads the node and makes its plan.
func (o *envOptions) plan(ctx context.Context, environ []string) (*netenv.Node, *netenv.Plan, error) {
	names, err := machine.PeerNames(o.peers, o.hostfile)
	if err != nil {
		return nil, nil, err
	}
	// The driver is not asked: it reports only the GPUs that this process may use, and all
	// processes of a host must find the same network cards.
	m, err := machine.Read(machine.Options{Root: o.root, File: o.topo, Flag: "--topo", Host: o.host, Note: noting(o.stderr)})
	if err != nil {
		return nil, nil, err
	}
	have := o.Options
	have.Env, have.Problems = variables.ForPlan(knob.AlreadySet(environ, m.FS.Text))
	return m.Plan(machine.LookUp(ctx, names), have)
}
