package fabric

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/internal/exit"
)

// launched returns this process's place among those that a launcher started, and the interfaces
// between them as NCCL's variables choose them.
func launched(o bootstrap.Options) (bootstrap.World, bootstrap.Options, *knob.Knobs, error) {
	knobs, _, err := knob.Load(os.Environ(), nil)
	if err != nil {
		return bootstrap.World{}, o, nil, err
	}
	o.Ifname, o.Family = knobs.SocketIfname, knobs.SocketFamily
	where, err := bootstrap.Detect(knobs.Getenv)
	if err != nil {
		return where, o, nil, exit.Usagef("%w", err)
	}
	return where, o, knobs, nil
}

// JoinLaunched is Join for the processes that a launcher started, one on each machine. It returns
// nil if there is only this one.
func JoinLaunched(ctx context.Context, o Options) (*Fabric, error) {
	where, boot, _, err := launched(o.Boot)
	if err != nil || where.Size == 1 {
		return nil, err
	}
	if where.LocalSize > 1 {
		return nil, exit.Usagef("%d processes were started on a machine, and it takes one: srun --ntasks-per-node=1, mpirun --map-by ppr:1:node, torchrun --nproc-per-node=1", where.LocalSize)
	}
	o.Boot = boot
	return Join(ctx, where, o)
}

// Finish leaves the fabric. Unless there is an error to report, it waits until the first machine
// has written everything, since a launcher that sees a process exit may kill the others.
func (f *Fabric) Finish(failed error) error {
	if failed != nil && failed.Error() != "" { // otherwise everything has been reported
		f.Leave(failed)
		return failed
	}
	_, err := f.ask(nil, func([][]byte) ([]byte, error) { return nil, nil })
	if f.firstLost() { // everything was written before; machines that do not know it yet are told
		_, _ = f.resume()
		err = nil
	}
	f.Leave(nil)
	if failed == nil {
		return err
	}
	return failed
}

// Ranks are the processes of a job that measures only as long as none of them is lost.
type Ranks struct {
	Net    *bootstrap.Net // nil: no other processes
	Addr   string         // at which the others reach this one
	Getenv func(string) string

	lost context.Context // ends when another process was lost
	lose context.CancelCauseFunc
}

// patience is the timeout of an exchange: processes with nothing to measure in a step wait for
// those that measure, which have a limit of their own.
const patience = 24 * time.Hour

// Meet finds the other processes that a launcher started.
func Meet(ctx context.Context) (*Ranks, error) {
	where, boot, knobs, err := launched(bootstrap.Options{})
	if err != nil {
		return nil, err
	}
	g := &Ranks{Addr: "127.0.0.1", Getenv: knobs.Getenv}
	g.lost, g.lose = context.WithCancelCause(context.Background())
	if where.Size == 1 {
		return g, nil
	}
	boot.OnDeath = func(rank int, what string) { g.lose(fmt.Errorf("rank %d was lost: %s", rank, what)) }
	id, root, err := bootstrap.ShareID(ctx, where, boot)
	if err != nil {
		return nil, fmt.Errorf("finding the other processes of the job (%s): %w", where.Launcher, err)
	}
	if root != nil {
		context.AfterFunc(ctx, func() { root.Close() })
	}
	// The root gives up joining after its own timeout, and informs all processes.
	boot.Timeout = patience
	joining, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if g.Net, err = bootstrap.Join(joining, id, where.Rank, where.Size, boot); err != nil {
		return nil, err
	}
	g.Addr = g.Net.Addr().String()
	return g, nil
}

// UntilLost returns a context that also ends when a process is lost, so that no other waits for it.
func (g *Ranks) UntilLost(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.lost, func() { cancel(context.Cause(g.lost)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// Lost says which process was lost; nil: none was.
func (g *Ranks) Lost() error { return context.Cause(g.lost) }

// Broken reports whether the processes can no longer exchange data.
func (g *Ranks) Broken() bool { return g.Net != nil && g.Net.Err() != nil }

// Close leaves the job.
func (g *Ranks) Close() error {
	if g.Net == nil {
		return nil
	}
	return g.Net.Close()
}

// Abort leaves the job at once.
func (g *Ranks) Abort() {
	if g.Net != nil {
		g.Net.Abort()
	}
}
