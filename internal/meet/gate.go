package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Patience is how long a handshake may take, which is two round trips.
const Patience = 5 * time.Second

// maxUnknown is how many connections may be in the handshake at once. One more, and
// the oldest goes: strangers that sit there cannot keep others out, and a genuine
// caller that had to go calls again.
const maxUnknown = 512

// A Gate listens, lets in callers that know the secret, and drops and logs the others.
// Its fields are set before the first Listen.
type Gate struct {
	Protocol Protocol
	Secret   []byte
	Name     string // of what listens, for the log
	Logf     func(format string, a ...any)
	Patience time.Duration // 0 stands for the constant
	Config   net.ListenConfig

	// Admit says why a caller that knows the secret is not expected, which it is
	// told; nil admits all. Enter gets the connection of one that is, its claim and
	// the connection's key, and owns them. Both may be called from several
	// goroutines at once, and Enter may take its time.
	Admit func(claim []byte) error
	Enter func(c net.Conn, claim, key []byte)

	wg        sync.WaitGroup
	mu        sync.Mutex
	listeners []net.Listener
	unknown   []net.Conn // oldest first
	closed    bool
	noted     uint64 // troubles
}

// Listen listens at an address, "ip:port"; port 0 is any. It returns where.
func (g *Gate) Listen(addr string) (netip.AddrPort, error) {
	l, err := g.Config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	g.Serve(l)
	return AddrPort(l.Addr()), nil
}

// Serve takes over a listener.
func (g *Gate) Serve(l net.Listener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		l.Close()
		return
	}
	g.listeners = append(g.listeners, l)
	g.wg.Go(func() { g.accept(l) })
}

// Close stops listening, hangs up on all that are not in yet, and waits for what
// the gate runs. Calls of Enter have to end by themselves.
func (g *Gate) Close() {
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

func (g *Gate) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely: it may pass
			g.note("accept: %v", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !g.take(c) {
			c.Close()
			return
		}
		g.wg.Go(func() { g.receive(c) })
	}
}

// take counts c among the unknown ones, in the place of the oldest if need be.
func (g *Gate) take(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if len(g.unknown) >= maxUnknown {
		g.unknown[0].Close()
		g.unknown = slices.Delete(g.unknown, 0, 1)
	}
	g.unknown = append(g.unknown, c)
	return true
}

// release takes c out of the unknown ones. It reports false when it was no longer
// among them: the gate has hung up on it.
func (g *Gate) release(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.unknown, c)
	if i >= 0 {
		g.unknown = slices.Delete(g.unknown, i, i+1)
	}
	return i >= 0
}

func (g *Gate) receive(c net.Conn) {
	patience := g.Patience
	if patience == 0 {
		patience = Patience
	}
	c.SetDeadline(time.Now().Add(patience))
	claim, key, err := g.Protocol.Examine(c, g.Secret)
	if !g.release(c) {
		c.Close()
		return
	}
	if err == nil && g.Admit != nil {
		if err = g.Admit(claim); err != nil {
			Refuse(c, fmt.Errorf("%s: %w", g.Name, err))
		}
	}
	if err != nil {
		g.drop(c, err)
		return
	}
	Welcome(c) // if it cannot be sent, the next read from c says so
	c.SetDeadline(time.Time{})
	g.Enter(c, claim, key)
}

// drop hangs up. A caller that hung up first is not logged: most likely it got in by
// another address.
func (g *Gate) drop(c net.Conn, why error) {
	c.Close()
	if !errors.Is(why, io.EOF) && !errors.Is(why, syscall.ECONNRESET) {
		g.note("dropped a connection from %v: %v", c.RemoteAddr(), why)
	}
}

// note logs the first ten troubles, then one every time that their number doubles: a
// flood of strangers must not become a flood of lines.
func (g *Gate) note(format string, a ...any) {
	g.mu.Lock()
	g.noted++
	n := g.noted
	g.mu.Unlock()
	if g.Logf != nil && (n <= 10 || bits.OnesCount64(n) == 1) {
		g.Logf("%s: %s (the %d. trouble so far)", g.Name, fmt.Sprintf(format, a...), n)
	}
}
