package coll

import (
	"fmt"
	"sync"

	"github.com/assay-hpc/assay/coll/schedule"
	"github.com/assay-hpc/assay/coll/transport/slots"
	"github.com/assay-hpc/assay/coll/tuning"
)

// A picker chooses how an operation is done.
type picker struct {
	tuner *tuning.Tuner
	slot  int
	ranks int
	env   tuning.Env
	force *forced // this, whatever the tuner says
}

// A forced choice is for one collective.
type forced struct {
	coll schedule.Collective
	tuning.Choice
}

// newPicker makes the tuner of a communicator. All ranks come to the same
// choices: they are made of what all know.
func newPicker(c *Comm, cores int) (picker, error) {
	k := c.cfg.Knobs
	env := tuning.Env{Ranks: c.size, Groups: len(c.links.groups), Cores: cores, Local: tuning.SHM, Net: c.links.netCost}
	if k.SHMDisable {
		env.Local = c.links.netCost
	}
	over := tuning.Overrides{
		Algo: collNetOnly{&k.Algo}, Proto: &k.Proto, Rings: c.cfg.rings, MinChannels: k.MinChannels, MaxChannels: c.maxChannels(c.links.network),
		BuffSize: int64(c.links.slot) * slots.N, SingleRingThreshold: k.SingleRingThreshold, LLThreshold: k.LLThreshold,
	}
	m, err := measurements(k.Tuning)
	if err != nil {
		return picker{}, err
	}
	t, err := shared.tuner(env, over, m)
	if err != nil {
		return picker{}, fmt.Errorf("choosing algorithms: %w", err)
	}
	return picker{tuner: t, slot: c.links.slot, ranks: c.size, env: env}, nil
}

// measurements are those of ASSAY_TUNING, or those that came with the package
// where that has none, or none of the processor's.
func measurements(file string) (*tuning.Measurements, error) {
	if file == "" {
		return tuning.Defaults()
	}
	m, err := tuning.LoadMeasurements(file)
	if err != nil {
		return nil, fmt.Errorf("ASSAY_TUNING: %w", err)
	}
	if len(m.Points) == 0 {
		return tuning.Defaults()
	}
	return m, nil
}

// tuners are shared by the ranks of a process: making one takes a millisecond.
type tuners struct {
	mu  sync.Mutex
	all map[string]*tuning.Tuner
}

var shared tuners

func (s *tuners) tuner(env tuning.Env, over tuning.Overrides, m *tuning.Measurements) (*tuning.Tuner, error) {
	key := fmt.Sprintf("%+v %p %v %v %v %d %d %d %d %d", env, m, over.Algo, over.Proto, over.Rings, over.MinChannels, over.MaxChannels, over.BuffSize, over.SingleRingThreshold, over.LLThreshold)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.all[key]; t != nil {
		return t, nil
	}
	t, err := tuning.NewTuner(env, over, m)
	if err != nil {
		return nil, err
	}
	if len(s.all) >= 32 { // programs make few kinds of communicators
		clear(s.all)
	}
	if s.all == nil {
		s.all = map[string]*tuning.Tuner{}
	}
	s.all[key] = t
	return t, nil
}

// pick chooses for an operation whose count is so many bytes.
func (p *picker) pick(coll schedule.Collective, bytes int) tuning.Choice {
	if f := p.force; f != nil && f.coll == coll {
		return f.Choice
	}
	switch coll {
	case schedule.AllReduce, schedule.Broadcast, schedule.Reduce, schedule.SendRecv:
	default:
		bytes *= p.ranks // of all ranks together
	}
	return p.tuner.Pick(coll, int64(bytes))
}
