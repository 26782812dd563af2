package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

const (
	// A handshake takes two round trips; who needs longer than this is no rank.
	handshakeTime = 5 * time.Second
	// So many connections may be in the handshake at once. One more, and the
	// oldest goes: strangers that sit there cannot keep ranks out.
	maxUnknown = 512
)

// A gate listens, lets in who knows the secret, and drops and logs the others.
type gate struct {
	secret []byte
	name   string // of the one who listens, for the log
	logf   func(string, ...any)
	// admit says whether who proved to know the secret is expected; if it
	// returns nil, enter gets the connection, and owns it. Both may be called
	// from several goroutines at once.
	admit func(hello) error
	enter func(hello, net.Conn, []byte)

	listeners []net.Listener
	wg        sync.WaitGroup
	mu        sync.Mutex
	unknown   []net.Conn // oldest first
	closed    bool
	entered   int // connections that were let in
	dropped   uint64
}

// listen adds an address to listen at; port 0 is any. open comes next.
func (g *gate) listen(a netip.AddrPort) (netip.AddrPort, error) {
	l, err := net.Listen("tcp", a.String())
	if err != nil {
		return netip.AddrPort{}, err
	}
	g.listeners = append(g.listeners, l)
	return addrPort(l.Addr()), nil
}

// listenAnywhere adds a port of each interface that o admits, and returns the ID
// of who listens there.
func (g *gate) listenAnywhere(o Options) (ID, error) {
	list, err := Interfaces(o)
	if err != nil {
		return ID{}, err
	}
	var addrs []netip.AddrPort
	for _, i := range list {
		if len(addrs) == idMaxAddrs {
			break
		}
		a, lerr := g.listen(netip.AddrPortFrom(i.Addr, 0))
		if lerr != nil {
			err = lerr
			continue
		}
		addrs = append(addrs, a)
	}
	if len(addrs) == 0 {
		return ID{}, fmt.Errorf("the root cannot listen on any of %s: %w", names(list), err)
	}
	return newID([secretBytes]byte(g.secret), addrs, false), nil
}

// listenAt adds those of an ID's addresses that are this host's; addr is what they
// were made of.
func (g *gate) listenAt(id ID, addr string, o Options) error {
	addrs, err := id.addrs()
	if err != nil {
		return err
	}
	// Who listened before at the same address may not quite be gone.
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		for _, a := range addrs {
			for _, z := range zones(a, o) {
				if _, lerr := g.listen(z); lerr != nil {
					err = lerr
				}
			}
		}
		if len(g.listeners) > 0 {
			return nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begun) > lingerTime+handshakeTime {
			return fmt.Errorf("the root cannot listen at %s: %w; NCCL_COMM_ID must be an address of rank 0's host, with a free port", addr, err)
		}
	}
}

func (g *gate) open() {
	for _, l := range g.listeners {
		g.wg.Add(1)
		go g.accept(l)
	}
}

// shut stops listening, hangs up on all who are not in yet, and waits for the
// gate's goroutines.
func (g *gate) shut() {
	g.mu.Lock()
	g.closed = true
	for _, l := range g.listeners {
		l.Close()
	}
	for _, c := range g.unknown {
		c.Close()
	}
	g.unknown = nil
	g.mu.Unlock()
	g.wg.Wait()
}

func (g *gate) accept(l net.Listener) {
	defer g.wg.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely: it may pass.
			g.logf("%s: accept: %v", g.name, err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !g.take(c) {
			c.Close()
			return
		}
		g.wg.Add(1)
		go g.receive(c)
	}
}

// take counts c among the unknown ones, in the place of the oldest if need be.
func (g *gate) take(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if len(g.unknown) >= maxUnknown {
		g.unknown[0].Close()
		g.unknown = append(g.unknown[:0], g.unknown[1:]...)
	}
	g.unknown = append(g.unknown, c)
	return true
}

// release takes c out of the unknown ones. It reports false when it was no
// longer among them: the gate has hung up on it.
func (g *gate) release(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, u := range g.unknown {
		if u == c {
			g.unknown = append(g.unknown[:i], g.unknown[i+1:]...)
			return true
		}
	}
	return false
}

func (g *gate) receive(c net.Conn) {
	defer g.wg.Done()
	c.SetDeadline(time.Now().Add(handshakeTime))
	h, transcript, err := examine(c, g.secret)
	if !g.release(c) {
		c.Close()
		return
	}
	if err == nil {
		err = g.admit(h)
	}
	if err != nil {
		g.drop(c, err)
		return
	}
	// If this cannot be sent the one who gets c finds out.
	c.Write([]byte{welcome})
	c.SetDeadline(time.Time{})
	g.mu.Lock()
	g.entered++
	g.mu.Unlock()
	g.enter(h, c, transcript)
}

// drop hangs up and logs the first ten, then every time their number doubles:
// a flood of strangers must not become a flood of lines. Who hung up first is
// not logged: most likely it is a rank that got in by another address.
func (g *gate) drop(c net.Conn, why error) {
	c.Close()
	if errors.Is(why, io.EOF) || errors.Is(why, syscall.ECONNRESET) {
		return
	}
	g.mu.Lock()
	g.dropped++
	n := g.dropped
	g.mu.Unlock()
	if n <= 10 || bits.OnesCount64(n) == 1 {
		g.logf("%s: dropped a connection from %s (the %d. so far): %v", g.name, c.RemoteAddr(), n, why)
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
