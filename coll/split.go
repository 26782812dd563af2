package coll

import (
	"context"
	"slices"

	"github.com/assay-hpc/assay/coll/bootstrap"
)

// NoColor is the color of a rank that Split leaves out.
const NoColor = -1

// Split makes communicators out of this one: ranks with the same color form
// one, numbered by key and, where keys are equal, by their ranks here. Every
// rank of the communicator calls it. A rank with NoColor gets nil.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	const op = "CommSplit"
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if color < 0 && color != NoColor {
		return nil, c.errorOf(InvalidArgument, op, "color %d is negative", color)
	}
	all, err := exchange(ctx, c.net, [2]int64{int64(color), int64(key)})
	if err != nil {
		return nil, c.wrap(op, err)
	}
	var members []int
	for r, v := range all {
		if int(v[0]) == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return int(all[a][1] - all[b][1]) })
	leader := slices.Min(members)

	var mine []byte
	if color != NoColor && leader == c.rank {
		root, err := bootstrap.NewRoot(c.cfg.boot)
		if err != nil {
			return nil, c.giveUp(op, err)
		}
		id := root.ID()
		mine = id[:]
	}
	ids, err := c.net.AllGather(ctx, mine)
	if err != nil {
		return nil, c.wrap(op, err)
	}
	if color == NoColor {
		return nil, nil
	}
	var id UniqueID
	if copy(id[:], ids[leader]) != len(id) {
		return nil, c.errorOf(RemoteError, op, "rank %d sent no ID for color %d", leader, color)
	}
	k := *c.cfg.Knobs
	k.CommID = "" // that was for the parent
	return CommInitRank(ctx, len(members), id, slices.Index(members, c.rank), Config{Knobs: &k, Log: c.cfg.log, Silence: c.cfg.boot.Silence, Device: c.cfg.device})
}

// giveUp is fail for what is no collective.
func (c *Comm) giveUp(op string, err error) error {
	e := c.wrap(op, err)
	c.fault.Set(e)
	return e
}
