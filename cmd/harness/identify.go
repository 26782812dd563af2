package main

import (
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
)

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
