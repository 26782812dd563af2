package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/knob"
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
	knobs, _, err := knob.Load(os.Environ(), nil)
	if err != nil {
		return nil, err
	}
	where, err := bootstrap.Detect(knobs.Getenv)
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	if where.Size == 1 {
		return nil, nil
	}
	if where.LocalSize > 1 {
		return nil, exit.Usagef("%d processes were started on a machine, and it takes one: srun --ntasks-per-node=1, mpirun --map-by ppr:1:node, torchrun --nproc-per-node=1", where.LocalSize)
	}
	f, err := fabric.Join(ctx, where, fabric.Options{
		Name: name, Run: node.RunChildIn,
		Boot: bootstrap.Options{Ifname: knobs.SocketIfname, Family: knobs.SocketFamily, Timeout: o.wait, Silence: o.silence},
		Lost: func(name, why string) { fmt.Fprintf(stderr, "harness: %s is lost: %s\n", name, why) },
	})
	if err != nil {
		return nil, exit.With(exit.NotDone, err)
	}
	return f, nil
}

// leaveFabric leaves the fabric. Unless there is an error to report, it waits until the
// first machine has written everything, since a launcher that sees a process exit may
// kill the others.
func leaveFabric(f *fabric.Fabric, failed error) error {
	if failed != nil && failed.Error() != "" { // otherwise everything has been reported
		f.Leave(failed)
		return failed
	}
	_, err := f.Ask(nil, func([][]byte) ([]byte, error) { return nil, nil })
	f.Leave(nil)
	if failed == nil && err != nil {
		return exit.With(exit.NotDone, err)
	}
	return failed
}
