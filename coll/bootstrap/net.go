package bootstrap

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/internal/meet"
)

// closeTime bounds how long Close waits for the neighbours to leave as well; abortTime
// how long Abort tries to send its last frame.
const (
	closeTime = 5 * time.Second
	abortTime = 200 * time.Millisecond
)

// A Net is one rank's part of a communicator that is up. Its methods may be called by
// several goroutines at once; exchanges run one at a time, and all ranks must make the
// same ones in the same order.
//
// It has two goroutines for each of its at most 7 neighbours, and one for the
// callbacks of the options.
type Net struct {
	rank, size int
	id         ID
	o          Options
	addr       netip.Addr
	zone       string
	listenAt   []netip.AddrPort

	links  []*link // sorted by rank
	up     *link   // to the parent; nil at rank 0
	down   []*link // to the children
	wg     sync.WaitGroup
	events events

	exchange chan struct{} // holds one token, which an exchange takes
	ops      ops

	failed chan struct{} // closed by the first fail

	mu       sync.Mutex // locked before a link's
	err      error
	dead     map[int]bool
	reports  map[int]uint64 // rank → number of its last report seen
	reported uint64         // number of this rank's last report
	closing  bool
}

func newNet(rank, size int, id ID, o Options) *Net {
	n := &Net{
		rank: rank, size: size, id: id, o: o,
		exchange: make(chan struct{}, 1),
		failed:   make(chan struct{}),
		dead:     map[int]bool{},
		reports:  map[int]uint64{},
	}
	n.events.wg = &n.wg
	n.exchange <- struct{}{}
	n.ops.pending = map[uint32]*op{}
	return n
}

// start takes over the connections to the neighbours.
func (n *Net) start(conns map[int]net.Conn) {
	byRank := map[int]*link{}
	for _, p := range neighbours(n.rank, n.size) {
		l := newLink(n, n.o.Silence, p, conns[p]).ofHost()
		byRank[p] = l
		n.links = append(n.links, l)
	}
	if n.rank > 0 {
		n.up = byRank[parent(n.rank)]
	}
	for _, c := range children(n.rank, n.size) {
		n.down = append(n.down, byRank[c])
	}
	for _, l := range n.links {
		l.start(&n.wg)
	}
}

// Rank returns this rank.
func (n *Net) Rank() int { return n.rank }

// Size is the number of ranks.
func (n *Net) Size() int { return n.size }

// Addr returns this rank's address as the others know it: of the interface that
// NCCL_SOCKET_IFNAME names, or else the address from which the root was reached.
func (n *Net) Addr() netip.Addr { return n.addr }

// Addrs returns all addresses that the options admit, best first, that of Addr
// before all others.
func (n *Net) Addrs() []meet.Interface {
	list, err := meet.Interfaces(n.o.Ifname, n.o.Family)
	if err != nil {
		n.o.Logf("rank %d: %v", n.rank, err)
	}
	own := func(i meet.Interface) bool { return i.Addr == n.addr }
	first := meet.Interface{Addr: n.addr}
	all, _ := meet.AllInterfaces() // an address that is not found has no interface name
	if i := slices.IndexFunc(all, own); i >= 0 {
		first = all[i]
	}
	return append([]meet.Interface{first}, slices.DeleteFunc(list, own)...)
}

// Key returns a key of 32 bytes that only the ranks of this communicator have, to
// authenticate their other connections. Different labels give independent keys.
func (n *Net) Key(label string) []byte { return derive(n.id.secret(), "user "+label) }

// Err returns why the Net no longer works, or nil: the first death, an exchange that went
// wrong, or ErrClosed. A death is a *transport.PeerError.
func (n *Net) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// fail records why the Net no longer works, and wakes the waiters.
func (n *Net) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failLocked(err)
}

func (n *Net) failLocked(err error) {
	if n.err == nil {
		n.err = err
		close(n.failed)
	}
}

// Close leaves, and waits at most 5 s for the neighbours to leave as well. Leaving does
// not count as a death. After Close, nothing of the Net runs.
func (n *Net) Close() error {
	n.leave(frameLeave, nil, closeTime)
	n.events.stop()
	n.wg.Wait()
	return nil
}

// Leave is Close that does not wait long for the neighbours to leave as well.
func (n *Net) Leave() {
	n.leave(frameLeave, nil, abortTime)
	n.events.stop()
}

// Abort leaves at once. The others treat it as a death, unless it is because of a death
// that they know of. Afterwards nothing of the Net runs except a callback that was
// already running. Abort may be called from a callback.
func (n *Net) Abort() {
	var because [1]byte
	n.mu.Lock()
	if len(n.dead) > 0 {
		because[0] = 1
	}
	n.mu.Unlock()
	n.leave(frameAbort, because[:], abortTime)
	n.events.stop()
}

// leave says goodbye to all neighbours, and waits for theirs.
func (n *Net) leave(k meet.Kind, payload []byte, patience time.Duration) {
	n.mu.Lock()
	n.failLocked(fmt.Errorf("rank %d: the communicator's network is %w", n.rank, ErrClosed))
	n.closing = true
	n.mu.Unlock()
	deadline := time.Now().Add(patience)
	for _, l := range n.links {
		l.finish(k, payload, deadline)
	}
	for _, l := range n.links {
		<-l.done
	}
}

// lost is called by a link that broke before the neighbour had left.
func (n *Net) lost(l *link, err error) {
	n.mu.Lock()
	closing := n.closing
	n.mu.Unlock()
	if closing {
		return
	}
	what, wait := meet.Brief(err), time.Duration(0)
	if isTimeout(err) {
		what, wait = "its host is silent", n.o.Silence
	}
	n.died(&transport.PeerError{Rank: l.rank, By: n.rank, What: what, Wait: wait}, nil)
}
