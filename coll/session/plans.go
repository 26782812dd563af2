package session

import (
	"fmt"

	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/schedule"
)

type planKey struct {
	coll      op.Collective
	algorithm string
	root      int // or the peer of a Send, or -2-peer for a Recv
	channels  int
}

type recentPlan struct {
	key  planKey
	plan *host.Plan
}

// Plan returns the cached plan of a collective, or creates it.
func (l *Links) Plan(c op.Collective, algorithm string, root, channels int) (*host.Plan, error) {
	k := planKey{c, algorithm, root, channels}
	last := &l.recent[c]
	if last.plan != nil && last.key == k {
		return last.plan, nil
	}
	p := l.plans[k]
	if p == nil {
		s, err := schedule.New(k.coll, k.algorithm, schedule.Options{Ranks: l.cfg.Size, Root: max(k.root, 0), Channels: k.channels, Rings: l.Env.Rings, Groups: l.Env.Hosts, InOrder: l.Env.SameBits, NoMulticast: l.shmInfos == nil})
		if err != nil {
			return nil, err
		}
		if s.Channels > l.channels {
			return nil, fmt.Errorf("%v by %s wants %d channels; there are %d", k.coll, k.algorithm, s.Channels, l.channels)
		}
		if p, err = host.NewPlan(s, l.cfg.Rank, l.Env.Slot, l); err != nil {
			return nil, err
		}
		l.plans[k] = p
	}
	*last = recentPlan{k, p}
	return p, nil
}

// PairPlan returns the plan of a Send or Recv: a schedule of one step.
func (l *Links) PairPlan(peer int, send bool) (*host.Plan, error) {
	k := planKey{coll: op.SendRecv, root: peer}
	if !send {
		k.root = -2 - peer
	}
	if p := l.plans[k]; p != nil {
		return p, nil
	}
	st := schedule.Step{Send: int32(peer), Recv: schedule.Nobody, A: schedule.Ref{Buf: schedule.Input}, Data: schedule.Span{N: 1}}
	if !send {
		st = schedule.Step{Send: schedule.Nobody, Recv: int32(peer), Dst: schedule.Ref{Buf: schedule.Output}, Data: schedule.Span{N: 1}}
	}
	s := &schedule.Schedule{
		Collective: op.SendRecv, Algorithm: "direct", Ranks: l.cfg.Size, Blocks: 1, Channels: 1,
		Program: func(int) schedule.Program {
			return schedule.Program{Lanes: []schedule.Lane{{Steps: []schedule.Step{st}}}}
		},
	}
	p, err := host.NewPlan(s, l.cfg.Rank, l.Env.Slot, &pairLinks{l})
	if err == nil {
		l.plans[k] = p
	}
	return p, err
}
