package coll

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/op"
)

// Tune measures every candidate algorithm of every collective at some sizes, and passes each
// measurement to add, in the same order on all ranks. It is a collective. Sizes are in bytes: of
// the vector for AllReduce, Broadcast and Reduce, of all ranks' blocks together for the others.
// Other ranks of a group or other goroutines must not use the communicator meanwhile.
func (c *Comm) Tune(ctx context.Context, sizes []int, add func(p choose.Place, k choose.Choice, bytes int, d time.Duration)) error {
	const name = "Tune"
	if c.size == 1 {
		return c.errorOf(InvalidUsage, name, "there is nothing to choose with one rank")
	}
	defer func() { c.forced, c.last.plan = nil, nil }()
	most := 0
	for _, s := range sizes {
		most = max(most, s)
	}
	in, err := Alloc(max(most, 8))
	if err != nil {
		return c.wrap(name, err)
	}
	defer Free(in)
	out, err := Alloc(max(most, 8))
	if err != nil {
		return c.wrap(name, err)
	}
	defer Free(out)
	m := measurement{c, in, out}
	for coll := range op.SendRecv {
		for _, size := range sizes {
			for _, choice := range c.links.Tuner.Candidates(coll, int64(size)) {
				if ctx.Err() != nil {
					return c.wrap(name, context.Cause(ctx))
				}
				t, err := m.best(ctx, coll, choice, size)
				if err != nil {
					return err
				}
				if t > 0 {
					add(c.links.Tuner.Place(coll), choice, size, t)
				}
			}
		}
	}
	return nil
}

// A forced choice overrides the tuner for one collective.
type forced struct {
	coll op.Collective
	choose.Choice
}

// A measurement measures operations on two buffers.
type measurement struct {
	c       *Comm
	in, out []byte
}

// best returns the time of an operation: the best round, by the mean over all ranks; 0 if the
// size is too small for the number of ranks.
func (m *measurement) best(ctx context.Context, coll op.Collective, choice choose.Choice, size int) (time.Duration, error) {
	c := m.c
	c.forced, c.last.plan = &forced{coll, choice}, nil
	count := size / 4
	if coll >= op.AllGather {
		count /= c.size
	}
	if count == 0 {
		return 0, nil
	}
	o := op.Op{Coll: coll, Count: count, Type: Float32}
	if !coll.Rooted() {
		o.Root = NoPeer
	}
	run := func(n int) (time.Duration, error) {
		if err := c.Barrier(); err != nil {
			return 0, err
		}
		start := time.Now()
		for range n {
			if err := c.do(collective(o, Bytes(m.in), Bytes(m.out))); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
	iters := 2
	var best time.Duration
	for k := range tuneRounds + 1 {
		t, err := run(iters)
		if err != nil {
			return 0, err
		}
		mean, err := m.mean(ctx, t)
		if err != nil {
			return 0, err
		}
		per := mean / time.Duration(iters)
		if k == 0 { // warm-up: connects, touches memory, and sets the number of iterations
			iters = min(max(2, int(tuneTime/(per+1))), 5000)
			continue
		}
		if best == 0 || per < best {
			best = per
		}
	}
	return max(best, 1), nil
}

// A measurement is the best of tuneRounds rounds of about tuneTime each.
const (
	tuneRounds = 5
	tuneTime   = 4 * time.Millisecond
)

// mean returns the mean of the values that all ranks pass, the same on all of them.
func (m *measurement) mean(ctx context.Context, t time.Duration) (time.Duration, error) {
	all, err := m.c.Exchange(ctx, binary.LittleEndian.AppendUint64(nil, uint64(t)))
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, b := range all {
		if len(b) != 8 {
			return 0, errors.New("ranks measure different things")
		}
		sum += binary.LittleEndian.Uint64(b)
	}
	return time.Duration(sum / uint64(len(all))), nil
}
