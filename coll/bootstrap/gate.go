package bootstrap

import (
	"errors"
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
