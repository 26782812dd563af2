// Package rendezvous sets up the two ends of a connection: a rank's Point listens on TCP,
// a sender dials it and states its rank and the channel that it wants, and both get a TCP
// connection. They send messages over it, or exchange what their network needs: a handle,
// say, or a queue pair's number.
//
// Each side proves to the other that it has the communicator's key
// (internal/meet). Nothing is encrypted.
package rendezvous

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/assay-hpc/assay/internal/meet"
)

// Options configure a Point. Rank, Key, Network, MaxMessage and Admit must be given.
type Options struct {
	Rank int    // of this process in the communicator
	Comm []byte // identifies the communicator and the transport; peers with another one are rejected as strangers
	Key  []byte // secret of the communicator, 16 bytes or more

	Network    string // the transport's name; peers must have the same
	Prefix     string // prefix of errors about peers that cannot be reached
	MaxMessage int    // bytes of the transport's longest message; two peers use the smaller of their values

	// Addrs are this host's addresses to listen on, best first. Those that do not work are
	// left out, and so are those beyond 64. None means the loopback address. Link-local ones
	// need their zone.
	Addrs []netip.Addr

	// Admit receives each connection of an authenticated peer, in its own goroutine.
	// Admit must close the connection.
	Admit func(from Stream, c net.Conn)

	// Lacking is told why no peer can be accepted for half a second, for example because there
	// are no descriptors left; may be nil.
	Lacking func(error)

	Logf func(format string, args ...any) // logs strangers, and addresses that do not connect; may be nil
}

// A Stream is one of the TCP connections that make up a connection between two ranks.
type Stream struct {
	Peer    int // the rank at the other end
	Channel int
	Index   int // number of this stream
	Count   int // number of streams, at most MaxStreams
}

// MaxStreams is the maximum number of streams of a connection.
const MaxStreams = 1 << 10

// A dialer's claim: source (4 bytes), dest (4), channel (4), index (2), count (2).
// Integers are big endian.
var protocol = meet.Protocol{Name: "r2", Claim: 16}

func (s Stream) claim(source int) (b []byte) {
	for _, v := range []int{source, s.Peer, s.Channel} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	b = binary.BigEndian.AppendUint16(b, uint16(s.Index))
	return binary.BigEndian.AppendUint16(b, uint16(s.Count))
}

// parseClaim returns the stream that a peer requests from this rank.
func parseClaim(b []byte, rank int) (s Stream, err error) {
	var v [3]int
	for i := range v {
		u := binary.BigEndian.Uint32(b[4*i:])
		if u > 1<<30 {
			return s, fmt.Errorf("field %d of what it wants is %d", i, u)
		}
		v[i] = int(u)
	}
	s = Stream{v[0], v[2], int(binary.BigEndian.Uint16(b[12:])), int(binary.BigEndian.Uint16(b[14:]))}
	switch {
	case v[1] != rank || s.Peer == rank:
		return s, fmt.Errorf("it is from rank %d to rank %d; this is rank %d", s.Peer, v[1], rank)
	case s.Count > MaxStreams || s.Index >= s.Count:
		return s, fmt.Errorf("stream %d of %d; there may be %d", s.Index, s.Count, MaxStreams)
	}
	return s, nil
}

func (o *Options) check() error {
	switch {
	case o.Rank < 0:
		return fmt.Errorf("rendezvous: rank %d is negative", o.Rank)
	case len(o.Key) < 16:
		return fmt.Errorf("rendezvous: the key has %d bytes; want 16 or more", len(o.Key))
	case o.Admit == nil:
		return errors.New("rendezvous: nothing admits peers")
	}
	for _, a := range o.Addrs {
		if !a.IsValid() || a.IsUnspecified() {
			return fmt.Errorf("rendezvous: %v is not an address of an interface", a)
		}
		if a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" {
			return fmt.Errorf("rendezvous: link-local address %v needs a zone: %v%%eth0, say", a, a)
		}
	}
	return nil
}

// A Point is where a rank's peers find it. Its methods may be called by many
// goroutines.
type Point struct {
	opt    Options
	local  []netip.Addr
	secret []byte
	addrs  Addrs
	info   []byte
	gate   meet.Gate
	ctx    context.Context // canceled by Close
	cancel context.CancelFunc

	mu      sync.Mutex
	bad     map[way]bool          // pairs that failed to connect
	works   map[netip.Addr]bool   // by local address that was tried: whether it has connected to any
	surveys map[string]*sync.Once // by peer's addresses
}

// Listen opens a point. The caller must close it.
func Listen(opt Options) (*Point, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if opt.Logf == nil {
		opt.Logf = func(string, ...any) {}
	}
	p := &Point{opt: opt, bad: map[way]bool{}, works: map[netip.Addr]bool{}, surveys: map[string]*sync.Once{}}
	addrs := opt.Addrs
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	m := hmac.New(sha256.New, opt.Key)
	m.Write(opt.Comm)
	p.secret = m.Sum(nil)
	p.gate = meet.Gate{
		Protocol: protocol, Secret: p.secret, Name: fmt.Sprintf("rank %d", opt.Rank), Logf: opt.Logf,
		Admit: func(claim []byte) error { _, err := parseClaim(claim, opt.Rank); return err },
		Enter: func(c net.Conn, claim, _ []byte) {
			s, _ := parseClaim(claim, opt.Rank)
			opt.Admit(s, c)
		},
		Lacking: opt.Lacking,
	}
	// An address may be gone since it was listed, and an IPv6 address is of no use until the kernel
	// has verified that no other host has it.
	var errs []error
	for _, a := range addrs {
		if len(p.addrs) == maxAddrs {
			opt.Logf("rendezvous: rank %d has %d addresses, and uses the first %d that work", opt.Rank, len(addrs), maxAddrs)
			break
		}
		at, err := p.gate.Listen(netip.AddrPortFrom(a.Unmap(), 0).String())
		if err != nil {
			errs = append(errs, fmt.Errorf("listen on %v: %w", a, err))
			continue
		}
		p.local, p.addrs = append(p.local, a.Unmap()), append(p.addrs, at)
	}
	if len(p.addrs) == 0 {
		p.Close()
		return nil, fmt.Errorf("rendezvous: no address works: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		opt.Logf("rendezvous: rank %d: %v; other addresses are used", opt.Rank, err)
	}
	p.info = Info{opt.MaxMessage, p.addrs, opt.Network}.Marshal()
	return p, nil
}

// Addrs returns the addresses on which the point listens. They are not secret.
func (p *Point) Addrs() Addrs { return p.addrs }

// Info returns the text of an Info, for peers. It is not secret.
func (p *Point) Info() []byte { return p.info }

// Peer parses a peer's Info. It reduces MaxMessage to this rank's limit.
func (p *Point) Peer(peer int, info []byte) (Info, error) {
	i, err := ParseInfo(info, peer, p.opt.Network)
	i.MaxMessage = min(i.MaxMessage, p.opt.MaxMessage)
	return i, err
}

// Reach returns why a peer with this Info cannot be dialed from here, or nil if it can,
// as far as its network and addresses show.
func (p *Point) Reach(peer int, info []byte) error {
	i, err := p.Peer(peer, info)
	if err == nil && len(ways(p.local, i.Addrs)) == 0 {
		err = fmt.Errorf("%s: rank %d: it listens on %v, this rank uses %v: no pair of one family; choose interfaces with NCCL_SOCKET_IFNAME", p.opt.Prefix, peer, i.Addrs, p.local)
	}
	return err
}

// Close stops accepting peers, and waits for running calls of Admit, which must return by
// themselves.
func (p *Point) Close() {
	p.cancel()
	p.gate.Close()
}

// dialPatience bounds the attempt on one of several pairs of addresses, and the time
// during which an acceptor that hangs up is tried again: one that is overrun by strangers
// may have hung up on the wrong peer.
const dialPatience = 5 * time.Second

// Dial connects to the point of a peer, for a stream. It tries the pairs of addresses, beginning
// with the one at the stream's index, and those that failed before last; of many, a survey finds
// which fail. While a pair is silent the next one is tried, too. The caller must close the connection.
func (p *Point) Dial(ctx context.Context, to Addrs, s Stream) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	all := ways(p.local, to)
	p.survey(ctx, to, all)
	list := p.inTurn(all, s.Index)
	errs := []error{fmt.Errorf("rank %d cannot be reached at %v", s.Peer, to)}
	results := make(chan attempt)
	silent := map[way]bool{} // being tried
	for next := 0; next < len(list) || len(silent) > 0; {
		if next < len(list) {
			silent[list[next]] = true
			go p.connect(ctx, list[next], len(list) > 1, results)
			next++
		}
		var later <-chan time.Time
		if next < len(list) {
			later = time.After(meet.Stagger)
		}
		select {
		case <-later:
			continue
		case r := <-results:
			delete(silent, r.way)
			c, err := r.c, r.err
			if err == nil { // one at a time: the peer must not see a stream twice
				c, err = p.greet(ctx, r, s, len(list) > 1)
			}
			p.note(r.way, err == nil)
			if err == nil {
				for w := range silent {
					p.note(w, false)
				}
				return c, nil
			}
			errs = append(errs, fmt.Errorf("from %v to %v: %w", r.from, r.to, err))
			if len(list) > 1 && ctx.Err() == nil {
				p.opt.Logf("rendezvous: rank %d cannot be reached from %v at %v (%v); other addresses are tried", s.Peer, r.from, r.to, err)
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
	}
	return nil, errors.Join(errs...)
}

// An attempt is the result of connecting a pair of addresses.
type attempt struct {
	way
	c   net.Conn
	err error
}

// connect connects a pair of addresses. If there are others, it gives up sooner.
func (p *Point) connect(ctx context.Context, w way, others bool, results chan<- attempt) {
	d := p.dialer(w, others)
	c, err := d.DialContext(ctx, "tcp", w.to.String())
	select {
	case results <- attempt{w, c, err}:
	case <-ctx.Done():
		if c != nil {
			c.Close()
		}
	}
}

func (p *Point) dialer(w way, others bool) net.Dialer {
	d := net.Dialer{LocalAddr: w.source()}
	if others {
		d.Timeout = dialPatience
	}
	return d
}

// note records whether a pair of addresses connects.
func (p *Point) note(w way, connects bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad[w] = !connects
	if connects {
		p.works[w.from] = true
	} else if !p.works[w.from] {
		p.works[w.from] = false
	}
}

// inTurn returns the ways in the order in which a stream tries them: first those that have not
// failed, from addresses that are not known to reach nobody.
func (p *Point) inTurn(list []way, index int) (out []way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	class := func(w way) int {
		works, tried := p.works[w.from]
		switch {
		case p.bad[w]:
			return 2
		case tried && !works:
			return 1
		}
		return 0
	}
	for c := range 3 {
		for i := range list {
			if w := list[(index+i)%len(list)]; class(w) == c {
				out = append(out, w)
			}
		}
	}
	return out
}

// greet makes a call over a connection. Where the listener was overrun, it connects again.
func (p *Point) greet(ctx context.Context, at attempt, s Stream, others bool) (c net.Conn, err error) {
	call := meet.Caller{Protocol: protocol, Secret: p.secret, Claim: s.claim(p.opt.Rank), Dialer: p.dialer(at.way, others)}
	begun := time.Now()
	err = meet.Again(ctx, func() (final bool, err error) {
		if c = at.c; c == nil {
			c, _, err = call.Dial(ctx, at.to.String())
		} else {
			_, err = call.Handshake(ctx, c)
		}
		at.c = nil
		overrun := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
		busy := !others && errors.Is(err, os.ErrDeadlineExceeded)
		return !busy && (!overrun || time.Since(begun) > dialPatience), err
	})
	return c, err
}
