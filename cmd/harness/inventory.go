package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/rootfs"
	"github.com/assay-hpc/assay/internal/words"
)

func inventoryCommand(out io.Writer) *cli.Command {
	var format, root string
	return &cli.Command{
		Name: "inventory", Usage: "list the image's packages with versions and licences",
		Flags: []cli.Flag{
			grammar.Format(&format, "text", "json"),
			&cli.StringFlag{Name: "root", Value: "/", Destination: &root, Usage: "read the image below `DIR`"},
		},
		Before: grammar.NoArgs,
		Action: func(*cli.Context) error {
			return inventory(out, format, root)
		},
	}
}

func inventory(out io.Writer, format, dir string) error {
	root, err := rootfs.Open(dir)
	if err != nil {
		return exit.Usagef("--root: %w", err)
	}
	inv, err := image.Inventory(root)
	if err != nil {
		return err
	}
	if format == "json" {
		b, err := inv.Marshal()
		if err != nil {
			return err
		}
		return writeIndented(words.Raw(out), b)
	}
	for _, p := range inv.Packages {
		if _, err := fmt.Fprintf(out, "%-40s %-30s %-6s %v\n", p.Name, p.Version, p.Arch, p.Licenses); err != nil {
			return err
		}
	}
	return nil
}
