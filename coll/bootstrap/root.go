package bootstrap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// maxRanks bounds what one rank can make the root allocate.
const maxRanks = 1 << 20

// lingerTime is how long the root waits for a rank to hang up after the last
// word, so that the word is not lost with the connection.
const lingerTime = 2 * time.Second

// A Root is where the ranks of one communicator meet. It works by itself: it
// introduces the ranks to one another, tells all of them when one has trouble,
// and closes itself when the communicator is up, or has failed. It has no part
// in what the communicator does then.
type Root struct {
	venue  // over when the last word has been said
	events chan rootEvent
	stop   chan struct{}
	once   sync.Once
	done   chan struct{} // closed when nothing of the root runs any more

	// Of serve alone.
	size    int
	sizeBy  *member    // who said size
	mu      sync.Mutex // for those who look at members from outside, and silent
	members map[int]*member
	silent  map[net.Conn]bool // of those that have not said where they are
	linked  int
	failed  error
	told    int              // ranks that were told of the failure
	enough  <-chan time.Time // when to stop telling
}

// A member is a rank that has come.
type member struct {
	rank   int
	size   int
	addr   netip.AddrPort
	who    string // host and process
	conn   net.Conn
	linked bool
}

func (m *member) String() string { return fmt.Sprintf("rank %d (%s)", m.rank, m.who) }

// A rootEvent is what a member said, or that its connection broke.
type rootEvent struct {
	m    *member
	kind meet.Kind
	text []byte
	err  error
}

// NewRoot listens on the interfaces that o admits, with a new random secret.
func NewRoot(o Options) (*Root, error) {
	m, err := opener(newRoot).anywhere(o.withDefaults())
	r, _ := m.(*Root)
	return r, err
}

// NewRootAt listens at a host and port that all ranks know beforehand, as with
// NCCL_COMM_ID. The ID is IDAt of both.
func NewRootAt(addr string, secret []byte, o Options) (*Root, error) {
	m, err := opener(newRoot).at(addr, secret, o.withDefaults())
	r, _ := m.(*Root)
	return r, err
}

// IDAt is the ID of a root that listens, or will, at "host:port". Its secret
// is made of the given one and the address. With an empty one anybody who
// knows the address can join.
func IDAt(addr string, secret []byte) (ID, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return ID{}, fmt.Errorf("root address %q: %w; write host:port", addr, err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil || port == 0 {
		return ID{}, fmt.Errorf("root address %q: port %q is not in 1 … 65535", addr, service)
	}
	ips, err := resolve(host)
	if err != nil {
		return ID{}, fmt.Errorf("root address %q: %w", addr, err)
	}
	var addrs []netip.AddrPort
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip, uint16(port)))
	}
	return newID([secretBytes]byte(derive(secret, "root at "+addr)), addrs, true), nil
}

// resolve returns a host's addresses, best first. A host often knows its own
// name as a loopback address, which is of no use to the others: then it is
// those of its interfaces.
func resolve(host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i := range ips {
		ips[i] = ips[i].Unmap().WithZone("")
	}
	if host != "localhost" && !slices.ContainsFunc(ips, func(a netip.Addr) bool { return !a.IsLoopback() }) {
		if list, err := meet.Interfaces("", ""); err == nil {
			ips = nil
			for _, i := range list {
				ips = append(ips, i.Addr.WithZone(""))
			}
		}
	}
	slices.SortStableFunc(ips, meet.CompareAddrs)
	return ips, nil
}

func newRoot(o Options, secret [secretBytes]byte) meeting {
	r := &Root{
		venue:   venue{o: o, over: make(chan struct{})},
		events:  make(chan rootEvent),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		members: map[int]*member{},
		silent:  map[net.Conn]bool{},
	}
	r.gate = o.gate("root", secret[:], r.admit, r.enter)
	return r
}

func (r *Root) start() { go r.serve() }

// Close ends the root, and waits until nothing of it runs. Ranks that are still
// joining are told.
func (r *Root) Close() error {
	r.once.Do(func() { close(r.stop) })
	<-r.done
	return nil
}

// Done is closed when the root has closed itself.
func (r *Root) Done() <-chan struct{} { return r.done }

func (r *Root) admit(h hello) error {
	if h.purpose != toRoot || h.to != nobodyRank {
		return fmt.Errorf("it wants %q of rank %d; this is a root", byte(h.purpose), h.to)
	}
	return nil
}

// enter owns the connection of a rank until it ends.
func (r *Root) enter(h hello, c net.Conn, _ []byte) {
	defer c.Close()
	r.listenTo(&member{rank: int(h.from), size: int(h.size), conn: c})
}

func (r *Root) listenTo(m *member) {
	r.heard(m.conn, false)
	defer r.heard(m.conn, true)
	for {
		k, p, err := meet.ReadFrame(m.conn, maxHello)
		if err == nil && k == frameHere {
			if len(p) < 18 {
				err = errors.New("its address is cut off")
			} else {
				m.addr, m.who = getAddr(p), string(p[18:])
				r.heard(m.conn, true)
			}
		}
		select {
		case r.events <- rootEvent{m, k, p, err}:
		case <-r.over:
			if r.members[m.rank] != m {
				m.say(frameFailed, encodeFailure(wrapf(ErrDisagree, "%s came too late, or is one too many: the root was done with the others", m)))
			}
			// Wait for m to hang up first: closing now could cost it the word.
			m.hangUp()
			io.Copy(io.Discard, m.conn)
			return
		}
		if err != nil {
			return
		}
	}
}

// heard notes whether a rank has said where it is. One that has not may be on a busy
// machine, but nobody waits for it when the root is done with the others.
func (r *Root) heard(c net.Conn, said bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if said {
		if r.silent[c] {
			delete(r.silent, c)
			c.SetReadDeadline(time.Time{})
		}
		return
	}
	r.silent[c] = true
	select {
	case <-r.over:
		c.SetReadDeadline(time.Now().Add(lingerTime))
	default:
	}
}

// serve is the root's life.
func (r *Root) serve() {
	defer r.end()
	var timeout <-chan time.Time
	for r.failed != nil || r.size == 0 || r.linked < r.size {
		select {
		case e := <-r.events:
			if timeout == nil {
				timer := time.NewTimer(r.o.Timeout)
				defer timer.Stop()
				timeout = timer.C
			}
			r.handle(e)
		case <-timeout:
			r.fail(r.overdue())
			return
		case <-r.enough:
			return
		case <-r.stop:
			r.fail(wrapf(ErrClosed, "the root was closed before all ranks had joined"))
			return
		}
	}
}

// end says the last word and hangs up.
func (r *Root) end() {
	for _, m := range r.members {
		if r.failed == nil {
			m.say(frameGo, nil)
		}
		m.hangUp()
	}
	r.mu.Lock()
	close(r.over)
	for c := range r.silent {
		c.SetReadDeadline(time.Now().Add(lingerTime))
	}
	r.mu.Unlock()
	r.gate.Close()
	r.beside.Wait()
	close(r.done)
}

func (r *Root) handle(e rootEvent) {
	if r.failed != nil {
		if e.err == nil && e.kind == frameHere {
			r.tell(e.m)
		}
		return
	}
	switch {
	case e.err != nil && r.members[e.m.rank] != e.m:
		r.o.Logf("root: rank %d hung up before it said where it is: %v", e.m.rank, e.err)
	case e.err != nil:
		r.fail(wrapf(ErrLost, "%s was lost while joining: %s", e.m, meet.Brief(e.err)))
	case e.kind == frameHere:
		r.arrive(e.m)
	case e.kind == frameFailed:
		r.fail(wrapf(ErrLost, "%s gave up: %s", e.m, e.text[min(1, len(e.text)):]))
	case e.kind == frameLinked && !e.m.linked:
		e.m.linked = true
		r.linked++
	default:
		r.fail(wrapf(ErrLost, "%s said something unexpected (%d)", e.m, e.kind))
	}
}

// arrive takes in a rank, and introduces all when it was the last.
func (r *Root) arrive(m *member) {
	if err := r.check(m); err != nil {
		r.size = max(r.size, min(m.size, maxRanks))
		r.fail(err)
		r.tell(m)
		return
	}
	r.mu.Lock()
	r.members[m.rank] = m
	r.mu.Unlock()
	if len(r.members) < r.size {
		return
	}
	for rank, m := range r.members {
		var p []byte
		for _, n := range neighbours(rank, r.size) {
			p = binary.BigEndian.AppendUint32(p, uint32(n))
			p = append(p, make([]byte, 18)...)
			putAddr(p[len(p)-18:], r.members[n].addr)
		}
		m.say(framePeers, p)
	}
}

// check says how m does not fit to those who are here.
func (r *Root) check(m *member) error {
	if r.sizeBy == nil && m.size > 0 && m.size <= maxRanks {
		r.size, r.sizeBy = m.size, m
	}
	switch other := r.members[m.rank]; {
	case m.size <= 0 || m.size > maxRanks:
		return wrapf(ErrDisagree, "%s says there are %d ranks; 1 to %d are possible", m, m.size, maxRanks)
	case m.size != r.size:
		return wrapf(ErrDisagree, "%s says there are %d ranks, %s says %d: all must join with one size", m, m.size, r.sizeBy, r.size)
	case m.rank < 0 || m.rank >= m.size:
		return wrapf(ErrDisagree, "%s is out of range: ranks go from 0 to %d", m, m.size-1)
	case other != nil:
		return wrapf(ErrDisagree, "rank %d came twice: %s and %s", m.rank, other.who, m.who)
	}
	return nil
}

// fail tells everybody. Those who come later will be told as they come.
func (r *Root) fail(err error) {
	if r.failed != nil {
		return
	}
	r.failed = err
	r.o.Logf("root: %v", err)
	for _, m := range r.members {
		r.tell(m)
	}
}

func (r *Root) tell(m *member) {
	m.say(frameFailed, encodeFailure(r.failed))
	m.hangUp()
	// Not only the ranks that there should be can come: also one that is one
	// too many. So there is a moment more.
	if r.told++; r.told >= r.size && r.enough == nil {
		r.enough = time.After(lingerTime)
	}
}

// overdue says who is missing.
func (r *Root) overdue() error {
	var missing, slow []int
	for rank := range r.size {
		if m := r.members[rank]; m == nil {
			missing = append(missing, rank)
		} else if !m.linked {
			slow = append(slow, rank)
		}
	}
	if len(missing) > 0 {
		return wrapf(ErrMissing, "%d of %d ranks joined within %v; missing: %s", r.size-len(missing), r.size, r.o.Timeout, rankList(missing))
	}
	return wrapf(ErrMissing, "within %v not all ranks had links to their neighbours; not ready: %s", r.o.Timeout, rankList(slow))
}

// say never waits long: what the root says fits into any socket buffer.
func (m *member) say(k meet.Kind, p []byte) {
	m.conn.SetWriteDeadline(time.Now().Add(lingerTime))
	meet.WriteFrame(m.conn, k, p) // if it is gone its reader notices
}

func (m *member) hangUp() {
	if t, ok := m.conn.(*net.TCPConn); ok {
		t.CloseWrite()
	}
	m.conn.SetReadDeadline(time.Now().Add(lingerTime))
}

// rankList prints ranks as "0-3,7", the first 20 runs of them.
func rankList(ranks []int) string {
	var out []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if len(out) == 20 {
			out = append(out, "…")
			break
		}
		s := strconv.Itoa(ranks[i])
		if j > i {
			s += "-" + strconv.Itoa(ranks[j])
		}
		out = append(out, s)
		i = j + 1
	}
	return strings.Join(out, ",")
}
