package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
	"github.com/assay-hpc/assay/internal/rootfs"
	"github.com/assay-hpc/assay/internal/verbs"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/internal/words"
)

func versionCommand(out io.Writer) *cli.Command {
	var format string
	return &cli.Command{
		Name: "version", Usage: "say which build this is",
		Flags:  []cli.Flag{grammar.Format(&format, "text", "json")},
		Before: grammar.NoArgs,
		Action: func(*cli.Context) error {
			v := version.Get()
			if format == "json" {
				return json.NewEncoder(out).Encode(struct {
					version.Info
					GPUs    string `json:"gpus,omitempty"`
					Kernels string `json:"kernels,omitempty"`
					RDMA    string `json:"rdma"`
				}{v, world.AboutGPUs(), world.AboutKernels(), verbs.About()})
			}
			_, err := fmt.Fprintf(out, "harness %v %s %s/%s\n", v, v.Go, v.OS, v.Arch)
			for _, part := range [][2]string{{"GPUs", world.AboutGPUs()}, {"Kernels", world.AboutKernels()}, {"RDMA", verbs.About()}} {
				if err == nil && part[1] != "" {
					_, err = fmt.Fprintf(out, "%s: %s\n", part[0], part[1])
				}
			}
			return err
		},
	}
}

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

// identifyCommand is for certify only. It queries drivers, which may hang or crash, so certify
// runs it in a child process.
func identifyCommand(out io.Writer) *cli.Command {
	return &cli.Command{
		Name: "identify", Usage: "say as JSON what this machine is, as certificates have it", Hidden: true,
		Before: grammar.NoArgs,
		Action: func(c *cli.Context) error {
			m, err := machine.Read(machine.Options{Root: "/", Places: os.Getenv("NCCL_TOPO_FILE"), Driver: true, Note: noting(newConsole(os.Stderr))})
			if err != nil {
				return err
			}
			cuda := func() (int, error) {
				all, missing := world.GPUs()
				return len(all), missing
			}
			id, err := m.Identify(machine.Drivers{NVML: openGPUs(), CUDA: cuda}, os.Getenv, os.Environ())
			if err != nil {
				return err
			}
			return writeJSON(out, id)
		},
	}
}
