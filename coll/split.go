package coll

import (
	"cmp"
	"context"
	"slices"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/session"
)

// NoColor is the color of a rank that Split leaves out.
const NoColor = -1

// Split creates communicators out of this one: ranks with the same color form one, numbered by
// key and, where keys are equal, by their ranks here. Every rank of the communicator calls it. A
// rank with NoColor gets nil.
func (c *Comm) Split(ctx context.Context, color, key int, as Child) (*Comm, error) {
	const op = "CommSplit"
	cfg, err := c.forChild(op, as)
	if err != nil {
		return nil, err
	}
	if err := c.enter(nil); err != nil {
		return nil, err
	}
	defer c.leave()
	ctx, stop := c.whileWhole(ctx)
	defer stop()
	all, err := session.Exchange(ctx, c.net, [2]int64{int64(color), int64(key)})
	if err != nil {
		return nil, c.giveUp(op, err)
	}
	var members []int
	for r, v := range all {
		if color != NoColor && int(v[0]) == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a][1], all[b][1]) })
	return c.child(ctx, op, members, cfg)
}

// child creates a communicator of some ranks, in the order of members; without members, this rank
// is left out. All ranks call it, each with the members of its own communicator.
func (r *ranks) child(ctx context.Context, op string, members []int, cfg Config) (_ *Comm, err error) {
	const ok = 1 // first byte of a message with an ID; else an error's text follows
	var root *bootstrap.Root
	defer func() {
		if err != nil && root != nil {
			_ = root.Close() // it waits for ranks that will not join
		}
	}()
	var mine []byte
	if len(members) > 0 && slices.Min(members) == r.rank {
		if root, err = bootstrap.NewRoot(r.cfg.boot); err != nil {
			mine = append([]byte{0}, err.Error()...)
		} else {
			id := root.ID()
			mine = append([]byte{ok}, id[:]...)
		}
	}
	ids, err := r.net.AllGather(ctx, mine)
	if err != nil {
		return nil, r.giveUp(op, err)
	}
	if len(members) == 0 {
		return nil, nil
	}
	leader := slices.Min(members)
	var id UniqueID
	if b := ids[leader]; len(b) != 1+len(id) || b[0] != ok {
		e := r.errorOf(RemoteError, op, "rank %d sent no ID: %s", leader, b[min(1, len(b)):])
		e.Peer = leader
		return nil, e
	}
	copy(id[:], ids[leader][1:])
	return CommInitRank(ctx, len(members), id, slices.Index(members, r.rank), cfg)
}

// A Child says how a communicator differs from its parent. The zero value: in its ranks only.
type Child struct {
	// Environ contains the variables that settings are read from; nil: the parent's settings.
	Environ []string
	Name    string // as in Config; "": the parent's
}

// forChild returns the Config of a child of this communicator.
func (r *ranks) forChild(op string, as Child) (Config, error) {
	k := *r.cfg.Knobs
	if as.Environ != nil {
		own, _, err := knob.Load(as.Environ, nil) // the warnings are those of the parent
		if err != nil {
			return Config{}, r.errorOf(InvalidArgument, op, "%w", err)
		}
		k = *own
	}
	k.CommID = "" // that was for the parent
	return Config{
		Knobs: &k, Log: r.cfg.log, Silence: r.cfg.boot.Silence, Device: r.cfg.device, GPUs: r.cfg.gpus, AsNCCL: r.cfg.asNCCL,
		Name: cmp.Or(as.Name, r.cfg.name), OnHang: r.cfg.onHang,
	}, nil
}

// whileWhole returns a context that ends with the communicator, too.
func (r *ranks) whileWhole(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.broken, func() { cancel(context.Cause(r.broken)) })
	return ctx, func() { stop(); cancel(nil) }
}

// giveUp makes the communicator unusable after a failed exchange: the ranks are out of step.
func (r *ranks) giveUp(op string, err error) error {
	r.net.Heard()
	if f := r.fault.Err(); f != nil {
		err = f // err is probably a consequence of the fault
	}
	e := r.wrap(op, err)
	r.fault.Set(e)
	return e
}
