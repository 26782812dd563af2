// Package session connects the ranks of a communicator: they agree on their settings, determine
// which transports reach which ranks, and open connections where operations need them.
package session

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/op"
	"github.com/assay-hpc/assay/coll/transport"
)

// A Config is what a Session needs of a rank.
type Config struct {
	*knob.Knobs
	Rank, Size int
	Boot       *bootstrap.Net
	Fault      *transport.Fault
	Broken     context.Context // done when there is a Fault
	Log        *debug.Logger
	Rings      [][]int // NCCL_RINGS, those of Size ranks
	// Term says whether the rank has a device: it must be the same on all ranks.
	Term   string
	Device *int                             // the ordinal of the rank's device; nil: none
	Bus    func(device int) (string, error) // a device's PCI address; nil: not known
}

// A Session is what the ranks of a communicator have agreed on.
type Session struct {
	cfg     Config
	Env     choose.Env
	Places  []executor.Place // by rank
	found   []choose.Found   // by rank
	network string           // network between the hosts, named as in NCCL_NET; "": none yet
}

// A hello is the first message between ranks: what must be the same on all of them, and where
// each one runs.
type hello struct {
	Version  uint32
	Settings [sha256.Size]byte // Env.Sum
	choose.Found
}

const protocolVersion = 7

// New agrees with the other ranks on the settings. All ranks call it.
func New(ctx context.Context, cfg Config) (*Session, error) {
	s := &Session{cfg: cfg}
	var bad error // error in this rank's settings; returned after the other ranks have learned of it
	s.Env, bad = choose.New(s.cfg.Knobs, s.cfg.Rings, s.cfg.Term)
	mine := hello{Version: protocolVersion, Settings: s.Env.Sum(), Found: choose.Find(s.cfg.ChecksDisable)}
	all := []hello{mine}
	var err error
	if s.cfg.Size > 1 {
		if mine.Host, err = s.hostID(); err != nil {
			return nil, err
		}
		if all, err = Exchange(ctx, s.cfg.Boot, mine); err != nil {
			return nil, err
		}
		if r := slices.IndexFunc(all, func(h hello) bool { return h.Version != mine.Version }); r >= 0 {
			return nil, s.errorOf(op.InvalidUsage, "rank %d speaks another version of this protocol", r)
		}
		if err := s.agree(ctx, all); err != nil {
			return nil, err
		}
	}
	s.found = make([]choose.Found, len(all))
	for r, h := range all {
		s.found[r] = h.Found
	}
	s.Env.Merge(s.found)
	s.Places = make([]executor.Place, s.cfg.Size)
	for i, g := range s.Env.Hosts {
		for _, r := range g {
			s.Places[r] = executor.Place{Host: i, Process: s.found[r].Process}
		}
	}
	if bad != nil {
		return nil, &op.Error{Code: op.InvalidArgument, Rank: s.cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer, Err: bad}
	}
	return s, nil
}

// agree returns an error if the ranks' Envs differ. Each rank has sent a hash of its settings.
// Only if the hashes differ do rank 0 and the first rank that differs from it send the settings
// themselves.
func (s *Session) agree(ctx context.Context, all []hello) error {
	odd := slices.IndexFunc(all, func(h hello) bool { return h.Settings != all[0].Settings })
	if odd < 0 {
		return nil
	}
	var mine []byte
	if s.cfg.Rank == 0 || s.cfg.Rank == odd {
		var err error
		if mine, err = json.Marshal(s.Env.Terms()); err != nil {
			return err
		}
	}
	got, err := s.cfg.Boot.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	var zero, other []choose.Term
	if json.Unmarshal(got[0], &zero) != nil || json.Unmarshal(got[odd], &other) != nil {
		return s.errorOf(op.InternalError, "ranks 0 and %d sent damaged settings", odd)
	}
	e := s.errorOf(op.InvalidUsage, "%w", choose.Differ(0, zero, odd, other))
	if e.Peer = odd; s.cfg.Rank == odd {
		e.Peer = 0
	}
	return s.together(ctx, e)
}

// together returns an error that all ranks have found, once all of them have: a rank that left
// earlier would look dead to the others.
func (s *Session) together(ctx context.Context, err error) error {
	_ = s.cfg.Boot.Barrier(ctx)
	return err
}

// errorOf returns an error of this rank.
func (s *Session) errorOf(code op.Code, format string, a ...any) *op.Error {
	return &op.Error{Code: code, Rank: s.cfg.Rank, Op: "CommInitRank", Peer: op.NoPeer, Err: fmt.Errorf(format, a...)}
}

// logf logs what a transport says.
func (s *Session) logf(format string, a ...any) { s.cfg.Log.Infof(debug.Bootstrap, format, a...) }

// Exchange passes v, a value of fixed size, to all ranks and returns the values of all, by rank.
func Exchange[T any](ctx context.Context, n *bootstrap.Net, v T) ([]T, error) {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		return nil, err
	}
	got, err := n.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(got))
	for i, g := range got {
		if m, err := binary.Decode(g, binary.LittleEndian, &all[i]); err != nil || m != len(g) {
			return nil, fmt.Errorf("rank %d speaks another version of this protocol", i)
		}
	}
	return all, nil
}

// ExchangeJSON passes this rank's value to all ranks, as JSON, and returns the values of all, by
// rank.
func ExchangeJSON[T any](ctx context.Context, s *Session, mine T) ([]T, error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	got, err := s.cfg.Boot.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(got))
	for r := range got {
		if err := json.Unmarshal(got[r], &all[r]); err != nil {
			return nil, s.errorOf(op.InternalError, "rank %d sent a damaged description: %v", r, err)
		}
	}
	return all, nil
}
