package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/site/kubernetes"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/words"
)

func unmarkCommand(out io.Writer) *cli.Command {
	var all bool
	return &cli.Command{
		Name: "unmark", Usage: "take what assay wrote from nodes of Kubernetes", ArgsUsage: "[NODE...]",
		Description: "Removes label, annotation, taint and condition. The chart's uninstallation runs it for all nodes; the account\n" +
			"needs list, get and patch on nodes, and patch on nodes/status.\n" +
			"Exits 0 if nothing is left, 2 on wrong usage, 3 if a node could not be changed.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Destination: &all, Usage: "all nodes that have something of assay's"}},
		Action: func(c *cli.Context) error {
			names := c.Args().Slice()
			if all == (len(names) > 0) {
				return exit.Usagef("unmark wants either --all or the names of nodes")
			}
			cluster, err := kubernetes.Connect()
			if err == nil && all {
				names, err = cluster.Marked(c.Context)
			}
			if err != nil {
				return exit.With(exit.NotDone, err)
			}
			var failed []error
			for _, name := range names {
				if err := cluster.Clear(c.Context, name); err != nil {
					failed = append(failed, err)
				}
			}
			if len(failed) > 0 {
				return exit.With(exit.NotDone, errors.Join(failed...))
			}
			_, err = fmt.Fprintf(out, "nothing of assay's is left on %s\n", words.Count(len(names), "node"))
			return err
		},
	}
}
