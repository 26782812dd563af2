package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// A joining is a rank that is joining a Net.
type joining struct {
	n        *Net
	id       ID
	root     *link
	expected int // links that are not up yet
	gate     *meet.Gate
	ready    chan struct{} // closed when all links are up
	verdict  chan error    // the root's result; nil: go

	ctx  context.Context // ends when the patience ends, or a link cannot be made
	fail context.CancelCauseFunc
	wg   sync.WaitGroup // of root, and connect

	introduced time.Time // when the root named the neighbours; set before it says go

	mu    sync.Mutex
	links map[int]net.Conn // neighbour → connection; nil while it is being admitted
}

// Join joins rank to the communicator of size ranks with this id. All ranks must call it;
// it returns when all ranks have links to their neighbours, or on all ranks an error with
// the reason. ctx and o.Timeout bound it. The caller must Close or Abort the Net.
func Join(ctx context.Context, id ID, rank, size int, o Options) (*Net, error) {
	o = o.withDefaults()
	addrs, err := id.addrs()
	if err != nil {
		return nil, err
	}
	ctx, cancel := o.patience(ctx, "rank %d: joining was not done within %v", rank, o.Timeout)
	defer cancel()

	begun := time.Now()
	j := &joining{n: newNet(rank, size, id, o), id: id, ready: make(chan struct{}), verdict: make(chan error, 1), links: map[int]net.Conn{}}
	j.ctx, j.fail = context.WithCancelCause(ctx)
	defer j.wg.Wait()
	defer j.fail(nil)
	if err := j.report(); err != nil {
		return nil, fmt.Errorf("rank %d cannot join at the root %v: %w", rank, addrs[0], err)
	}
	reported := time.Now()
	defer j.root.drop()
	defer j.gate.Close()
	if err := j.await(ctx); err != nil {
		j.drop()
		return nil, err
	}
	o.Logf("rank %d of %d is up at %s with %d links: %v to the root, %v until all had come, %v until all were linked", rank, size, joined(j.n.listenAt), len(j.links),
		rounded(reported.Sub(begun)), rounded(j.introduced.Sub(reported)), rounded(time.Since(j.introduced)))
	j.n.start(j.links)
	return j.n, nil
}

func rounded(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// report connects to the root, listens where others can reach this rank, and tells the root
// where that is.
func (j *joining) report() error {
	conn, err := j.id.call(j.ctx, hello{purpose: toRoot, from: int32(j.n.rank), to: nobodyRank, size: int32(j.n.size)}, j.n.o, false)
	if err != nil {
		return err
	}
	if err := j.listen(conn); err != nil {
		conn.Close()
		return err
	}
	j.root = newLink(j, j.n.o.Silence, nobodyRank, conn).ofHost()
	j.root.limit = maxHello
	j.root.send(frameHere, append(appendAddrs(nil, j.n.listenAt), whoAmI()...))
	j.root.start(&j.wg)
	return nil
}

// whoAmI describes this process for people.
func whoAmI() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %s", os.Getpid(), host[:min(len(host), 64)])
}

// listen opens the rank's own listener at those of its addresses where that is possible.
func (j *joining) listen(root net.Conn) error {
	n := j.n
	addrs, err := j.addresses(meet.AddrPort(root.LocalAddr()).Addr(), meet.AddrPort(root.RemoteAddr()).Addr())
	if err != nil {
		return err
	}
	j.expected = len(neighbours(n.rank, n.size))
	if j.expected == 0 {
		close(j.ready)
	}
	j.gate = n.o.gate(fmt.Sprintf("rank %d", n.rank), j.id.secret(), j.admit, j.enter)
	j.gate.Lacking = func(err error) { j.fail(fmt.Errorf("rank %d: %w", n.rank, err)) }
	for _, a := range addrs {
		at, lerr := j.gate.Listen(netip.AddrPortFrom(a, 0).String())
		if lerr != nil {
			err = lerr
			continue
		}
		if n.listenAt = append(n.listenAt, at); len(n.listenAt) == 1 {
			n.addr, n.zone = a, a.Zone()
		}
		if len(n.listenAt) == idMaxAddrs {
			break
		}
	}
	if len(n.listenAt) > 0 {
		return nil
	}
	return err
}

// addresses returns the addresses at which others can reach this rank, best first.
// Without an Ifname, that is the address from which it reached the root: others use the
// same route. On the root's own host any address leads to the root, even one that no
// other host can reach, so there they are all addresses of the root. With an Ifname, they
// are addresses of that interface, of the root's family first.
func (j *joining) addresses(local, remote netip.Addr) ([]netip.Addr, error) {
	if j.n.o.Ifname == "" {
		if local.WithZone("") != remote.WithZone("") {
			return []netip.Addr{local}, nil
		}
		var out []netip.Addr
		ids, _ := j.id.addrs()
		for _, id := range ids {
			for _, z := range meet.Zones(id, j.n.o.Ifname) {
				out = append(out, z.Addr())
			}
		}
		if !slices.Contains(out, local) {
			out = append(out, local)
		}
		return out, nil
	}
	list, err := meet.Interfaces(j.n.o.Ifname, j.n.o.Family)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, fits := range []func(netip.Addr) bool{
		func(a netip.Addr) bool { return a == local },
		func(a netip.Addr) bool { return a.Is4() == local.Is4() },
		netip.Addr.IsValid,
	} {
		for _, i := range list {
			if fits(i.Addr) && !slices.Contains(out, i.Addr) {
				out = append(out, i.Addr)
			}
		}
	}
	return out, nil
}

// admit admits neighbours of higher rank, each once: the higher rank dials.
func (j *joining) admit(h hello) error {
	from := int(h.from)
	switch {
	case h.purpose != toPeer || int(h.to) != j.n.rank || int(h.size) != j.n.size:
		return fmt.Errorf("it wants %q of rank %d of %d; this is rank %d of %d", byte(h.purpose), h.to, h.size, j.n.rank, j.n.size)
	case from <= j.n.rank || !slices.Contains(neighbours(j.n.rank, j.n.size), from):
		return fmt.Errorf("it says it is rank %d, which does not call this one", from)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.links[from]; ok {
		return fmt.Errorf("it says it is rank %d, which is here already", from)
	}
	j.links[from] = nil
	return nil
}

func (j *joining) enter(h hello, c net.Conn, _ []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.links[int(h.from)] = c
	if j.expected--; j.expected == 0 {
		close(j.ready)
	}
}

// await waits until the root reports that all links of all ranks are up.
func (j *joining) await(patience context.Context) error {
	select {
	case err := <-j.verdict:
		return err
	case <-j.ctx.Done():
	}
	// Either the caller's patience has ended, or a link could not be made: the root tells
	// the others, and this rank.
	cause := context.Cause(j.ctx)
	j.root.send(frameFailed, encodeFailure(cause))
	select {
	case err := <-j.verdict:
		switch {
		case err != nil && patience.Err() == nil:
			return err
		case err != nil && err != cause && isLate(cause): // names the ranks that are missing
			return fmt.Errorf("%w: %w", cause, err)
		}
	case <-time.After(lingerTime):
	}
	return cause
}

// isLate reports whether a rank's patience has ended, and not for another reason.
func isLate(cause error) bool {
	return errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, ErrTimeout)
}

// handle processes the root's frames until the root says go, or reports a failure.
func (j *joining) handle(_ *link, k meet.Kind, p []byte) error {
	switch k {
	case frameBeat:
	case frameFailed:
		j.judge(decodeFailure(p))
	case frameGo:
		j.judge(nil)
	case framePeers:
		peers, err := decodePeers(p)
		if err != nil {
			j.judge(err)
			break
		}
		j.introduced = time.Now()
		j.wg.Go(func() { j.connect(peers) })
	default:
		j.judge(fmt.Errorf("the root said something unexpected (%d)", k))
	}
	return nil
}

// lost handles the loss of the link to the root, which may be the consequence of this rank's failure.
func (j *joining) lost(_ *link, err error) {
	if cause := context.Cause(j.ctx); cause != nil {
		j.judge(cause)
		return
	}
	j.judge(wrapf(ErrLost, "rank %d lost the root while joining: %s", j.n.rank, meet.Brief(err)))
}

// judge keeps the first verdict.
func (j *joining) judge(err error) {
	select {
	case j.verdict <- err:
	default:
	}
}

// A peer is a neighbour and where it listens.
type peer struct {
	rank  int
	addrs []netip.AddrPort
}

func decodePeers(b []byte) ([]peer, error) {
	var out []peer
	for len(b) > 0 {
		if len(b) < 4 {
			return nil, errors.New("the root's list of neighbours is cut off")
		}
		rank := int(binary.BigEndian.Uint32(b))
		addrs, rest, err := cutAddrs(b[4:])
		if err != nil {
			return nil, fmt.Errorf("the root's list of neighbours: rank %d: %w", rank, err)
		}
		out, b = append(out, peer{rank, addrs}), rest
	}
	return out, nil
}

// connect dials the neighbours of lower rank, and tells the root when all links are up.
func (j *joining) connect(peers []peer) {
	var wg sync.WaitGroup
	for _, p := range peers {
		if p.rank >= j.n.rank {
			continue
		}
		wg.Go(func() {
			h := hello{purpose: toPeer, from: int32(j.n.rank), to: int32(p.rank), size: int32(j.n.size)}
			c := meet.Caller{Protocol: protocol, Secret: j.id.secret(), Claim: h.encode()}
			conn, _, err := c.Call(j.ctx, j.reach(p.addrs))
			if err != nil {
				j.fail(wrapf(ErrLost, "rank %d cannot reach rank %d at %s: %s", j.n.rank, p.rank, joined(p.addrs), meet.Brief(err)))
				return
			}
			j.enter(hello{from: int32(p.rank)}, conn, nil)
		})
	}
	wg.Wait()
	select {
	case <-j.ready:
		j.root.send(frameLinked, nil)
	case <-j.ctx.Done():
	}
}

// reach returns the addresses to dial for a neighbour's: link-local ones over the interface that
// this rank has chosen.
func (j *joining) reach(addrs []netip.AddrPort) (out []string) {
	for _, a := range addrs {
		if a.Addr().Is6() && a.Addr().IsLinkLocalUnicast() && j.n.zone != "" {
			a = netip.AddrPortFrom(a.Addr().WithZone(j.n.zone), a.Port())
		}
		for _, z := range meet.Zones(a, j.n.o.Ifname) {
			out = append(out, z.String())
		}
	}
	return out
}

// drop closes the links that exist.
func (j *joining) drop() {
	j.gate.Close()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.links {
		if c != nil {
			c.Close()
		}
	}
}
