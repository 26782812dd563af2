package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/build/component"
	"github.com/assay-hpc/assay/build/matrix"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/exit"
)

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name: "schema", Usage: "print the JSON Schema of a matrix, component or certificate",
		ArgsUsage:    "[matrix|component|certificate]",
		BashComplete: func(c *cli.Context) { fmt.Fprint(c.App.Writer, "matrix\ncomponent\ncertificate\n") },
		Action: func(c *cli.Context) error {
			if c.NArg() > 1 {
				return exit.Usagef("schema takes one argument: matrix, component or certificate")
			}
			var doc []byte
			switch c.Args().First() {
			case "", "matrix":
				doc = append(matrix.Schema(component.Library()), '\n')
			case "component":
				doc = append(matrix.DefinitionSchema(component.Library()), '\n')
			case "certificate":
				doc = certificate.Schema()
			default:
				return exit.Usagef("there is no schema of %q: matrix, component or certificate", c.Args().First())
			}
			_, err := c.App.Writer.Write(doc)
			return err
		},
	}
}
