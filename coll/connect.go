package coll

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/transport/shm"
)

// A hello is what ranks tell one another first: what must be the same, and
// where they are.
type hello struct {
	Version  uint32
	PID      uint32
	Settings uint64 // a hash of what decides which messages are sent
	Host     uint64
	CPUs     [16]uint64 // which processors of the host the rank may use
	Device   uint32     // 0: none; 1: one; 2: one, without anything that knows devices
}

const protocolVersion = 3

// connect finds out who can be reached how, and makes the endpoints.
func (c *Comm) connect(ctx context.Context) error {
	if c.size == 1 {
		c.links = &links{}
		c.links.init()
		c.places = []Place{{Process: uint32(os.Getpid())}}
		return nil
	}
	hostID, err := c.hostID()
	if err != nil {
		return err
	}
	mine := hello{Version: protocolVersion, PID: uint32(os.Getpid()), Settings: c.settingsHash(), Host: hostID, CPUs: affinity(), Device: c.hasDevice()}
	all, err := exchange(ctx, c.net, mine)
	if err != nil {
		return err
	}
	for r, h := range all {
		if h.Version != mine.Version || h.Settings != mine.Settings {
			return &Error{Code: InvalidUsage, Rank: c.rank, Op: "CommInitRank", Peer: r, Err: fmt.Errorf("rank %d has another version or other NCCL_ settings than rank %d", r, c.rank)}
		}
	}
	if err := c.sameDevices(all); err != nil {
		return err
	}
	l := &links{rank: c.rank, groups: groups(all), infos: make([]peerInfo, c.size), ctx: c.broken, openDeadline: 30 * time.Second}
	l.network = len(l.groups) > 1 || c.cfg.SHMDisable
	l.channels = 2 * c.maxChannels(l.network) // double trees have two for each
	l.init()
	c.links = l
	c.setPlaces(all)
	l.slot = c.slot(!l.network)
	return c.endpoints(ctx, all)
}

// groups are the ranks of each host, in the order of their lowest ranks.
func groups(all []hello) [][]int {
	at := map[uint64]int{}
	var g [][]int
	for r, h := range all {
		i, ok := at[h.Host]
		if !ok {
			i = len(g)
			at[h.Host] = i
			g = append(g, nil)
		}
		g[i] = append(g[i], r)
	}
	return g
}

// reached is what ranks tell one another in the end.
type reached struct{ Shm uint32 } // 1: shared memory works

// endpoints makes them, exchanges what peers need to know, and chooses one for
// each peer. Both ends of every pair must choose the same: the choice is made
// of what all ranks know.
func (c *Comm) endpoints(ctx context.Context, all []hello) error {
	l := c.links
	var err error
	local := l.groups[slices.IndexFunc(l.groups, func(g []int) bool { return slices.Contains(g, c.rank) })]
	if l.network {
		if err := c.openNetwork(ctx, local); err != nil {
			return err
		}
	}
	if !c.cfg.SHMDisable {
		o := shm.Options{Rank: c.rank, Ranks: c.size, Channels: l.channels + 1, Slot: l.slot, Host: all[c.rank].Host, Secret: binary.LittleEndian.Uint64(c.net.Key("shm"))}
		if c.cfg.P2P() {
			o.Direct = &c.fault
		}
		if l.shm, err = shm.New(o); err != nil {
			c.cfg.log.Warnf("no shared memory: %v", err)
			l.shm = nil
		}
	}
	if err := c.share(ctx, local); err != nil {
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
	c.picks, err = newPicker(c, c.setWatch(all, local))
	return err
}

// share exchanges what the endpoints say of themselves, then whether shared
// memory works on every host: it is used by all of a host's ranks or by none.
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
		return c.errorOf(SystemError, "CommInitRank", "the ranks of this host cannot share memory with one another, and there is no network between them: set NCCL_SHM_DISABLE=1 to use one")
	}
	return nil
}

// tryShm opens the memory of the next rank on the host.
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

// exchange gives every rank every rank's value, of a fixed size.
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

// affinity is the set of processors that this process may use.
func affinity() (mask [16]uint64) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return mask
	}
	for i := range 1024 {
		if set.IsSet(i) {
			mask[i/64] |= 1 << (i % 64)
		}
	}
	return mask
}

// setWatch decides how the rank waits: spinning, if its host has a processor
// for each of its ranks. It returns how many processors they have.
func (c *Comm) setWatch(all []hello, local []int) (cpus int) {
	var union [16]uint64
	for _, r := range local {
		for i, w := range all[r].CPUs {
			union[i] |= w
		}
	}
	cpus = min(onesOf(union), max(runtime.GOMAXPROCS(0), onesOf(union)/max(1, len(local))*len(local)))
	within := 0 // ranks of this process
	for _, r := range local {
		if all[r].PID == all[c.rank].PID {
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
	if cpus < len(local) {
		s.Spin, s.Yield = 0, 2000
	}
	if c.links.shm != nil {
		s.Sleeper = c.links.shm.Bell()
	}
	c.waitForNetwork(s)
	c.watch = host.Watch{
		Waiter: s, Fault: c.fault.Err, Timeout: c.cfg.Timeout, Slow: stallAfter,
		Late: func(_ int, b host.Blocked, d time.Duration) { c.late(c.one.Header, b, d) },
	}
	return cpus
}
