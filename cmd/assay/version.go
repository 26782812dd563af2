package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/version"
)

func versionCommand() *cli.Command {
	var form string
	return &cli.Command{
		Name: "version", Usage: "print version, commit and build date",
		Flags:  []cli.Flag{grammar.Format(&form, "text", "json")},
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			if form == "json" {
				return writeJSON(c.App.Writer, version.Get())
			}
			_, err := fmt.Fprintln(c.App.Writer, "assay "+version.Get().String())
			return err
		},
	}
}
