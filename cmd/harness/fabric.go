package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/harness/fabric"
	"github.com/assay-hpc/assay/harness/node"
	"github.com/assay-hpc/assay/internal/exit"
)

// fabricOptions are the options of commands that several machines run together.
type fabricOptions struct {
	wait, silence time.Duration
}

func (o *fabricOptions) flags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "wait", Value: 2 * time.Minute, Destination: &o.wait, Usage: "with several machines: wait `TIME` for all of them, then continue without the missing ones"},
		&cli.DurationFlag{Name: "silence", EnvVars: []string{fabric.SilenceVar}, Value: 10 * time.Second, Destination: &o.silence, Usage: "with several machines: give up a machine that is silent for `TIME`"},
	}
}

func (o *fabricOptions) check() error {
	if o.wait <= 0 || o.silence <= 0 {
		return exit.Usagef("--wait and --silence must be more than nothing")
	}
	return nil
}

// join connects to the other processes that a launcher started, one on each machine. It
// returns nil if there are none.
func (o *fabricOptions) join(ctx context.Context, name string, stderr io.Writer) (*fabric.Fabric, error) {
	return fabric.JoinLaunched(ctx, fabric.Options{
		Name: name, Run: node.RunChildIn, Boot: bootstrap.Options{Timeout: o.wait, Silence: o.silence},
		Lost: func(name, why string) { fmt.Fprintf(stderr, "harness: %s is lost: %s\n", name, why) },
	})
}
