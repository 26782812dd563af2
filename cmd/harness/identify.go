package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf/world"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/host/machine"
)

// identify reads what this machine is in a child process: drivers may hang, and this process must
// not keep the GPUs from being reset.
func identify(ctx context.Context) (id machine.Identity, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, healthLimit, fmt.Errorf("no answer within %v", healthLimit))
	defer stop()
	out, err := node.RunChild(ctx, "identify")
	if err == nil && out.Status != 0 {
		err = fmt.Errorf("status %d: %s", out.Status, strings.TrimSpace(out.Stderr))
	}
	if err == nil {
		err = json.Unmarshal(out.Stdout, &id)
	}
	if err != nil {
		return id, exit.With(exit.NotDone, fmt.Errorf("asking what this machine is: %w", err))
	}
	return id, nil
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
