package coll

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/choose"
	"github.com/assay-hpc/assay/coll/executor"
	"github.com/assay-hpc/assay/coll/hang"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/shm"
)

// A hello is the first message between ranks: what must be the same on all of them, and where
// each one runs.
type hello struct {
	Version  uint32
	Settings [sha256.Size]byte // Env.Sum
	choose.Found
}

const protocolVersion = 6

// connect agrees with the other ranks on the settings, determines how each rank can be reached,
// and creates the endpoints.
func (c *Comm) connect(ctx context.Context) error {
	var bad error // error in this rank's settings; returned after the other ranks have learned of it
	c.env, bad = choose.New(c.cfg.Knobs, c.cfg.rings, c.deviceTerm())
	mine := hello{Version: protocolVersion, Settings: c.env.Sum(), Found: choose.Find(c.cfg.ChecksDisable)}
	all := []hello{mine}
	var err error
	if c.size > 1 {
		if mine.Host, err = c.hostID(); err != nil {
			return err
		}
		if all, err = exchange(ctx, c.net, mine); err != nil {
			return err
		}
		if r := slices.IndexFunc(all, func(h hello) bool { return h.Version != mine.Version }); r >= 0 {
			return c.errorOf(InvalidUsage, "CommInitRank", "rank %d speaks another version of this protocol", r)
		}
		if err := c.agree(ctx, all); err != nil {
			return err
		}
	}
	c.found = make([]choose.Found, len(all))
	for r, h := range all {
		c.found[r] = h.Found
	}
	c.env.Merge(c.found)
	c.places = make([]executor.Place, c.size)
	for i, g := range c.env.Hosts {
		for _, r := range g {
			c.places[r] = executor.Place{Host: i, Process: c.found[r].Process}
		}
	}
	if bad != nil {
		return &Error{Code: InvalidArgument, Rank: c.rank, Op: "CommInitRank", Peer: NoPeer, Err: bad}
	}
	return c.open(ctx)
}

// open opens the connections between ranks that have agreed on everything else.
func (c *Comm) open(ctx context.Context) error {
	c.links = &links{}
	if c.size > 1 {
		*c.links = links{rank: c.rank, infos: make([]peerInfo, c.size), ctx: c.broken, openDeadline: 30 * time.Second}
		c.links.channels = 2 * c.env.Channels() // double trees need two per channel
	}
	c.links.init()
	if c.size == 1 {
		return nil
	}
	return c.endpoints(ctx)
}

// key returns a secret that the ranks share, for the purpose that label names; each lane has its
// own.
func (c *Comm) key(label string) []byte { return c.net.Key(c.lane + label) }

// agree returns an error if the ranks' Envs differ. Each rank has sent a hash of its settings.
// Only if the hashes differ do rank 0 and the first rank that differs from it send the settings
// themselves.
func (c *Comm) agree(ctx context.Context, all []hello) error {
	odd := slices.IndexFunc(all, func(h hello) bool { return h.Settings != all[0].Settings })
	if odd < 0 {
		return nil
	}
	var mine []byte
	if c.rank == 0 || c.rank == odd {
		var err error
		if mine, err = json.Marshal(c.env.Terms()); err != nil {
			return err
		}
	}
	got, err := c.net.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	var zero, other []choose.Term
	if json.Unmarshal(got[0], &zero) != nil || json.Unmarshal(got[odd], &other) != nil {
		return c.errorOf(InternalError, "CommInitRank", "ranks 0 and %d sent damaged settings", odd)
	}
	e := c.errorOf(InvalidUsage, "CommInitRank", "%w", choose.Differ(0, zero, odd, other))
	if e.Peer = odd; c.rank == odd {
		e.Peer = 0
	}
	return c.together(ctx, e)
}

// together returns an error that all ranks have found, once all of them have: a rank that left
// earlier would look dead to the others.
func (c *Comm) together(ctx context.Context, err error) error {
	_ = c.net.Barrier(ctx)
	return err
}

// reached is the last message that ranks exchange.
type reached struct{ Shm uint32 } // 1: shared memory works

// endpoints creates the endpoints, exchanges what peers need to know, and chooses an endpoint for
// each peer. Both ends of every pair must choose the same one, so the choice depends only on what
// all ranks know.
func (c *Comm) endpoints(ctx context.Context) error {
	l := c.links
	var err error
	local := c.env.Hosts[c.places[c.rank].Host]
	if c.env.Network() {
		if err := c.openNetwork(ctx, local); err != nil {
			return err
		}
	}
	if !c.env.SHMDisable {
		o := shm.Options{Rank: c.rank, Ranks: c.size, Channels: l.channels + 1, Slot: c.env.Slot, Host: c.found[c.rank].Host, Secret: binary.LittleEndian.Uint64(c.key("shm"))}
		if c.env.P2P {
			o.Direct = &c.fault
		}
		if l.shm, err = shm.New(o); err != nil {
			c.cfg.log.Warnf("no shared memory: %v", err)
			l.shm = nil
		}
	}
	switch err := c.share(ctx, local); {
	case err == errNoSharedMemory:
		if c.rank == 0 {
			c.cfg.log.Warnf("the ranks of this host cannot share memory with one another, and use the network, as with NCCL_SHM_DISABLE=1")
		}
		if err := l.close(); err != nil {
			return err
		}
		c.env.SHMDisable = true
		c.env.Merge(c.found)
		return c.open(ctx)
	case err != nil:
		return err
	}
	if err := c.openCollNet(ctx); err != nil {
		return err
	}
	if l.shm != nil && len(local) == c.size && l.infos[(c.rank+1)%c.size].near {
		l.shmInfos = make([][]byte, c.size)
		for r := range l.infos {
			l.shmInfos[r] = l.infos[r].shm
		}
	}
	c.setWatch(local)
	return nil
}

// share exchanges the endpoints' descriptions, and then whether shared memory works on every
// host: either all ranks of a host use it or none does.
func (c *Comm) share(ctx context.Context, local []int) error {
	l := c.links
	var mine []byte
	var infos [2][]byte
	if l.shm != nil {
		infos[0] = l.shm.Info()
	}
	if l.net != nil {
		infos[1] = l.net.Info()
	}
	for _, b := range infos {
		mine = append(binary.LittleEndian.AppendUint32(mine, uint32(len(b))), b...)
	}
	all, err := c.net.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	for r, b := range all {
		for _, to := range []*[]byte{&l.infos[r].shm, &l.infos[r].net} {
			if len(b) < 4 || int(binary.LittleEndian.Uint32(b)) > len(b)-4 {
				return c.errorOf(InternalError, "CommInitRank", "rank %d sent a damaged description", r)
			}
			n := int(binary.LittleEndian.Uint32(b))
			*to, b = b[4:4+n], b[4+n:]
		}
	}
	if c.tuner, err = c.env.Tuner(); err != nil {
		return c.together(ctx, c.errorOf(InvalidUsage, "CommInitRank", "choosing algorithms: %w", err))
	}
	if c.rank == 0 && c.tuner.Warning != "" {
		c.cfg.log.Warnf("%s", c.tuner.Warning)
	}
	works, err := exchange(ctx, c.net, c.tryShm(local))
	if err != nil {
		return err
	}
	usable := uint32(1)
	for _, r := range local {
		usable &= works[r].Shm
	}
	for _, r := range local {
		l.infos[r].near = usable == 1 && r != c.rank
	}
	if usable == 0 && len(local) > 1 && l.net == nil {
		return errNoSharedMemory
	}
	return nil
}

// errNoSharedMemory: all ranks are on one host, and all know that shared memory does not work there.
var errNoSharedMemory = errors.New("the ranks of this host cannot share memory with one another")

// tryShm opens and tests the shared memory of the next rank on the host.
func (c *Comm) tryShm(local []int) (r reached) {
	l := c.links
	if l.shm == nil {
		return r
	}
	next := local[(slices.Index(local, c.rank)+1)%len(local)]
	err := l.shm.Reach(next, l.infos[next].shm)
	if err == nil {
		err = l.shm.Try(next, l.infos[next].shm)
	}
	if err != nil {
		c.cfg.log.Warnf("no shared memory with rank %d: %v", next, err)
		return r
	}
	r.Shm = 1
	return r
}

// exchange passes v, a value of fixed size, to all ranks and returns the values of all, by rank.
func exchange[T any](ctx context.Context, n *bootstrap.Net, v T) ([]T, error) {
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

// setWatch decides how the rank waits: spinning, if its host has a processor
// for each of its ranks.
func (c *Comm) setWatch(local []int) {
	within := 0 // ranks of this process
	for _, r := range local {
		if c.found[r].Process == c.found[c.rank].Process {
			within++
		}
	}
	s := &host.Spinner{Spin: 20000, Yield: 200, Nap: 20 * time.Millisecond}
	switch {
	case within == 1:
		s.Process = 64 // the runtime wakes another thread when a goroutine yields
	case within < len(local):
		s.Process = 2
	}
	if choose.Processors(c.found, local) < len(local) {
		s.Spin, s.Yield = 0, 2000
	}
	if c.links.shm != nil {
		s.Sleeper = c.links.shm.Bell()
	}
	c.waitForNetwork(s)
	c.watch = host.Watch{
		Waiter: s, Fault: c.fault.Err, Timeout: c.cfg.Timeout, Slow: hang.Slow,
		Late: func(_ int, h transport.Header, b host.Blocked, d time.Duration) { c.waits.Late(h, b, d) },
	}
}
