package coll

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/bootstrap"
	"github.com/assay-hpc/assay/coll/debug"
	"github.com/assay-hpc/assay/coll/host"
	"github.com/assay-hpc/assay/coll/knob"
	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/shm"
)

// A Config is what communicators are made with. The zero value takes the
// settings from the environment.
type Config struct {
	Knobs *knob.Knobs   // nil: what the environment says
	Log   *debug.Logger // nil: what Knobs say
	// Silence is how long a host may be unreachable before its ranks count as
	// dead; 0 is the bootstrap's default.
	Silence time.Duration
}

// settings are a Config, completed.
type settings struct {
	*knob.Knobs
	log   *debug.Logger
	owned *debug.Logger // opened by us
	rings [][]int
	boot  bootstrap.Options
}

func (cfg Config) complete(rank, size int) (settings, error) {
	s := settings{Knobs: cfg.Knobs, log: cfg.Log} // a Knobs is shared, and not changed
	var said []knob.Warning
	if s.Knobs == nil {
		k, warnings, err := knob.Load(os.Environ(), nil)
		if err != nil {
			return s, err
		}
		s.Knobs = k
		said = knob.News(warnings)
	}
	if s.log == nil {
		l, err := debug.Open(debug.Options{Level: s.Debug, Subsystems: s.DebugSubsystems, File: s.DebugFile})
		if err != nil {
			return s, err
		}
		s.log, s.owned = l.ForRank(rank, rank), l
	}
	for _, w := range said {
		if w.Level == debug.Warn {
			s.log.Warnf("%v", w)
		} else {
			s.log.Infof(debug.Env, "%v", w)
		}
	}
	var err error
	var left int
	if s.rings, left, err = s.RingsFor(size); err != nil {
		return s, err
	}
	if left > 0 {
		s.log.Infof(debug.Graph, "NCCL_RINGS: %d rings are not of %d ranks and are left out", left, size)
	}
	log := s.log
	s.boot = bootstrap.Options{
		Ifname: s.SocketIfname, Family: s.SocketFamily, Silence: cfg.Silence,
		Logf: func(f string, a ...any) { log.Infof(debug.Bootstrap, f, a...) },
	}
	return s, nil
}

// GetUniqueID makes the ID of a communicator. The process that calls it must
// live until all ranks have joined: they find one another through it.
func GetUniqueID(cfg Config) (UniqueID, error) {
	s, err := cfg.complete(0, 1)
	if err != nil {
		return UniqueID{}, &Error{Code: InvalidArgument, Rank: NoPeer, Op: "GetUniqueID", Peer: NoPeer, Err: err}
	}
	if s.CommID != "" { // rank 0 will listen there
		id, err := bootstrap.IDAt(s.CommID, jobSecret())
		if err != nil {
			return UniqueID{}, &Error{Code: InvalidArgument, Rank: NoPeer, Op: "GetUniqueID", Peer: NoPeer, Err: err}
		}
		return id, nil
	}
	root, err := bootstrap.NewRoot(s.boot)
	if err != nil {
		return UniqueID{}, &Error{Code: SystemError, Rank: NoPeer, Op: "GetUniqueID", Peer: NoPeer, Err: err}
	}
	return root.ID(), nil
}

// jobSecret is what keeps strangers out who know NCCL_COMM_ID.
func jobSecret() []byte { return []byte(os.Getenv("ASSAY_JOB_SECRET")) }

// byCommID is the ID that NCCL_COMM_ID stands for, whatever ID the ranks were
// given, as in NCCL. Rank 0 listens there.
func (s *settings) byCommID(rank int) (UniqueID, error) {
	if rank == 0 {
		root, err := bootstrap.NewRootAt(s.CommID, jobSecret(), s.boot)
		if err != nil {
			return UniqueID{}, err
		}
		return root.ID(), nil
	}
	return bootstrap.IDAt(s.CommID, jobSecret())
}

// CommInitAll makes a communicator of n ranks in this process, by rank.
func CommInitAll(ctx context.Context, n int, cfg Config) ([]*Comm, error) {
	id, err := GetUniqueID(cfg)
	if err != nil {
		return nil, err
	}
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return CommInitRanks(ctx, n, id, ranks, cfg)
}

// CommInitRanks joins several of a communicator's n ranks, as a group of
// CommInitRank calls would. The result is in the order of ranks. On an error
// there is none.
func CommInitRanks(ctx context.Context, n int, id UniqueID, ranks []int, cfg Config) ([]*Comm, error) {
	comms, errs := make([]*Comm, len(ranks)), make([]error, len(ranks))
	var wg sync.WaitGroup
	for i, r := range ranks {
		wg.Go(func() { comms[i], errs[i] = CommInitRank(ctx, n, id, r, cfg) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			for _, c := range comms {
				if c != nil {
					_ = c.Abort()
				}
			}
			return nil, err
		}
	}
	return comms, nil
}

// CommInitRank joins a communicator of n ranks as one of them, and waits for
// the others.
func CommInitRank(ctx context.Context, n int, id UniqueID, rank int, cfg Config) (*Comm, error) {
	const op = "CommInitRank"
	fail := func(code Code, err error) (*Comm, error) {
		var e *Error
		if errors.As(err, &e) {
			return nil, err
		}
		return nil, &Error{Code: code, Rank: rank, Op: op, Peer: NoPeer, Err: err}
	}
	if n < 1 || rank < 0 || rank >= n {
		return fail(InvalidArgument, fmt.Errorf("there is no rank %d of %d", rank, n))
	}
	s, err := cfg.complete(rank, n)
	if err != nil {
		return fail(InvalidArgument, err)
	}
	if s.CommID != "" {
		if id, err = s.byCommID(rank); err != nil {
			return fail(SystemError, err)
		}
	}
	c := newComm(rank, n, s)
	if c.net, err = bootstrap.Join(ctx, id, rank, n, c.bootOptions()); err != nil {
		if f := c.fault.Err(); f != nil {
			return nil, c.wrap(op, f)
		}
		return fail(joinCode(err), err)
	}
	if err := c.connect(ctx); err != nil {
		e := c.wrap(op, err)
		c.fault.Set(e)
		c.net.Abort()
		if c.links != nil {
			_ = c.links.close()
		}
		return nil, e
	}
	if rank == 0 && s.TopoDumpFile != "" {
		if err := dumpTopology(s.TopoFile, s.TopoDumpFile); err != nil {
			c.cfg.log.Warnf("NCCL_TOPO_DUMP_FILE: %v", err)
		}
	}
	c.cfg.log.Infof(debug.Init, "comm rank %d nranks %d - Init COMPLETE", rank, n)
	return c, nil
}

func newComm(rank, n int, s settings) *Comm {
	c := &Comm{rank: rank, size: n, cfg: s, sent: make([]uint32, n), rcvd: make([]uint32, n)}
	c.plans = map[planKey]*host.Plan{}
	c.single[0] = &c.one
	var cancel context.CancelCauseFunc
	c.broken, cancel = context.WithCancelCause(context.Background())
	c.fault.Hook = func(err error) {
		cancel(err)
		c.announce(err)
	}
	return c
}

func joinCode(err error) Code {
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return Timeout
	}
	return SystemError
}

// bootOptions makes the bootstrap report what happens to other ranks.
func (c *Comm) bootOptions() bootstrap.Options {
	o := c.cfg.boot
	o.OnDeath = func(rank int, what string) {
		c.fault.Set(&transport.PeerError{Rank: rank, By: c.rank, What: what})
	}
	o.OnReport = func(from int, payload []byte) {
		var r report
		if json.Unmarshal(payload, &r) != nil {
			return // of another version, or damaged
		}
		if r.Waiting != nil {
			c.stalls.heard(c, from, *r.Waiting)
			return
		}
		c.fault.Set(r.error(c.rank, from))
	}
	return o
}

// A report tells the other ranks why a rank gave up.
type report struct {
	Code  Code   `json:"code"`
	Op    string `json:"op"`
	Peer  int    `json:"peer"`
	Text  string `json:"text"`
	Abort bool   `json:"abort,omitempty"`

	Waiting *stall `json:"waiting,omitempty"` // no error: what the rank has been waiting in
}

func (r report) error(rank, from int) error {
	e := &Error{Code: RemoteError, Rank: rank, Op: "asynchronous", Peer: from}
	if r.Abort {
		e.Err = fmt.Errorf("%w by rank %d", ErrAborted, from)
	} else {
		e.Err = fmt.Errorf("rank %d gave up: %s", from, r.Text)
	}
	return e
}

// announce tells the other ranks about this one's error, unless it came from
// there.
func (c *Comm) announce(err error) {
	var e *Error
	if !errors.As(err, &e) || e.Code == RemoteError || c.net == nil {
		return
	}
	payload, merr := json.Marshal(report{Code: e.Code, Op: e.Op, Peer: e.Peer, Text: e.Error(), Abort: errors.Is(e, ErrAborted)})
	if merr == nil {
		c.net.Report(payload)
	}
}

// A hello is what ranks tell one another first: what must be the same, and
// where they are.
type hello struct {
	Version  uint32
	_        uint32
	Settings uint64 // a hash of what decides which messages are sent
	Host     uint64
	CPUs     [16]uint64 // which processors of the host the rank may use
}

const protocolVersion = 1

// connect finds out who can be reached how, and makes the endpoints.
func (c *Comm) connect(ctx context.Context) error {
	if c.size == 1 {
		c.links = &links{}
		c.links.init()
		return nil
	}
	hostID, err := c.hostID()
	if err != nil {
		return err
	}
	mine := hello{Version: protocolVersion, Settings: c.settingsHash(), Host: hostID, CPUs: affinity()}
	all, err := exchange(ctx, c.net, mine)
	if err != nil {
		return err
	}
	for r, h := range all {
		if h.Version != mine.Version || h.Settings != mine.Settings {
			return &Error{Code: InvalidUsage, Rank: c.rank, Op: "CommInitRank", Peer: r, Err: fmt.Errorf("rank %d has another version or other NCCL_ settings than rank %d", r, c.rank)}
		}
	}
	l := &links{rank: c.rank, groups: groups(all), infos: make([]peerInfo, c.size), ctx: c.broken, openDeadline: 30 * time.Second}
	l.network = len(l.groups) > 1 || c.cfg.SHMDisable
	l.channels = 2 * c.maxChannels(l.network) // double trees have two for each
	l.init()
	c.links = l
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
	if l.network {
		if l.socket, err = c.openSocket(c.net.Key("socket")); err != nil {
			return err
		}
	}
	if err := c.share(ctx, local); err != nil {
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
	if l.socket != nil {
		infos[1] = l.socket.Info()
	}
	for _, b := range infos {
		mine = append(binary.LittleEndian.AppendUint32(mine, uint32(len(b))), b...)
	}
	all, err := c.net.AllGather(ctx, mine)
	if err != nil {
		return err
	}
	for r, b := range all {
		for _, to := range []*[]byte{&l.infos[r].shm, &l.infos[r].socket} {
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
	if usable == 0 && len(local) > 1 && l.socket == nil {
		return c.errorOf(SystemError, "CommInitRank", "the ranks of this host cannot share memory with one another, and there are no sockets between them: set NCCL_SHM_DISABLE=1 to use sockets")
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
	s := &host.Spinner{Spin: 20000, Yield: 200, Nap: 20 * time.Millisecond, Process: true}
	if cpus < len(local) {
		s.Spin, s.Yield = 0, 2000
	}
	if c.links.shm != nil {
		s.Sleeper = c.links.shm.Bell()
	}
	c.waitForSockets(s)
	c.watch = host.Watch{
		Waiter: s, Fault: c.fault.Err, Timeout: c.cfg.Timeout, Slow: stallAfter,
		Late: func(_ int, b host.Blocked, d time.Duration) { c.late(c.one.Header, b, d) },
	}
	return cpus
}
