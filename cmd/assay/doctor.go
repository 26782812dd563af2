package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
)

func doctorCommand() *cli.Command {
	o := &common{}
	bf := &builderFlags{}
	return &cli.Command{
		Name: "doctor", Usage: "list missing prerequisites and how to install them",
		Flags:  append(o.flags(grammar.Format(&o.output, "text", "json")), bf.flags()...),
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			w, err := o.open(c)
			if err != nil {
				return err
			}
			found := w.Doctor(c.Context, driver.BuildOptions{Builders: bf.addrs(), Buildkitd: bf.buildkitd})
			if o.output == "json" {
				err = writeJSON(c.App.Writer, map[string]any{"schemaVersion": 1, "findings": found})
			} else {
				for _, f := range found {
					mark := "ok      "
					if !f.OK {
						mark = "MISSING "
					}
					fmt.Fprintf(c.App.Writer, "%s%-22s %s\n", mark, f.What, f.Detail)
					if f.Remedy != "" {
						fmt.Fprintf(c.App.Writer, "        %-22s remedy: %s (for %s)\n", "", f.Remedy, f.For)
					}
				}
			}
			for _, f := range found {
				if !f.OK && err == nil {
					return exit.With(exit.Fail, nil)
				}
			}
			return err
		},
	}
}
