package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/perftest/membw"
)

// bandwidthPrograms maps names of NVIDIA's programs to the tools that do the same. The
// harness acts as such a program if it is started under that name.
var bandwidthPrograms = map[string]func(context.Context, []string, io.Writer, io.Writer) error{
	"bandwidthTest": bandwidthTestTool, "p2pBandwidthLatencyTest": bandwidthP2P,
}

// runBandwidth runs the tool for one of those names; ok is false for other names.
func runBandwidth(ctx context.Context, args []string, out, errOut io.Writer) (code int, ok bool) {
	name := filepath.Base(args[0])
	tool, ok := bandwidthPrograms[name]
	if !ok {
		return 0, false
	}
	err := tool(ctx, args[1:], out, errOut)
	if err != nil && err.Error() != "" {
		fmt.Fprintf(errOut, "%s: %v\n", name, err)
	}
	return exit.Of(err), true
}

// onMachine runs a tool on the GPUs. A wrong or failed measurement is a failed check.
func onMachine(ctx context.Context, anywhere bool, f func(membw.Machine) error) error {
	m, err := openMachine(anywhere)
	if err != nil {
		return err
	}
	err = f(m)
	closed := m.Close()
	if err != nil && ctx.Err() == nil {
		return exit.With(exit.Fail, err)
	}
	return errors.Join(err, closed)
}

// bandwidthTestTool is "harness bandwidth test".
func bandwidthTestTool(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, done, err := membw.ParseTest(args, errOut)
	if done || err != nil {
		return err
	}
	return onMachine(ctx, false, func(m membw.Machine) error { return o.Run(ctx, m, out) })
}

// bandwidthP2P is "harness bandwidth p2p".
func bandwidthP2P(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, done, err := membw.ParseP2P(args, errOut)
	if done || err != nil {
		return err
	}
	return onMachine(ctx, false, func(m membw.Machine) error { return o.Run(ctx, m, out) })
}
