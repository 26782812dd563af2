package coll

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/tuning"
)

// A picker chooses how an operation is done.
type picker struct {
	tuner *tuning.Tuner
	slot  int
	ranks int
	force [schedule.NumCollectives]string // of tests: the algorithm, whatever the tuner says
}

// newPicker makes the tuner of a communicator. All ranks come to the same
// choices: they are made of what all know.
func newPicker(c *Comm, cores int) (picker, error) {
	k := c.cfg.Knobs
	env := tuning.Env{Ranks: c.size, Groups: len(c.links.groups), Cores: cores, Local: tuning.SHM, Net: tuning.Socket}
	if k.SHMDisable {
		env.Local = tuning.Socket
	}
	over := tuning.Overrides{
		Algo: &k.Algo, Proto: &k.Proto, Rings: c.cfg.rings, MinChannels: k.MinChannels, MaxChannels: c.maxChannels(c.links.network),
		BuffSize: int64(c.links.slot) * slots, SingleRingThreshold: k.SingleRingThreshold, LLThreshold: k.LLThreshold,
	}
	t, err := tuning.NewTuner(env, over, nil)
	if err != nil {
		return picker{}, fmt.Errorf("choosing algorithms: %w", err)
	}
	return picker{tuner: t, slot: c.links.slot, ranks: c.size}, nil
}

// pick chooses for an operation whose count is so many bytes.
func (p *picker) pick(coll schedule.Collective, bytes int) tuning.Choice {
	if f := p.force[coll]; f != "" {
		return tuning.Choice{Algorithm: f, Channels: 1}
	}
	switch coll {
	case schedule.AllReduce, schedule.Broadcast, schedule.Reduce, schedule.SendRecv:
	default:
		bytes *= p.ranks // of all ranks together
	}
	return p.tuner.Pick(coll, int64(bytes))
}
