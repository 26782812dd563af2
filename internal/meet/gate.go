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

// Patience is how long a handshake, which is two round trips, may take.
const Patience = 5 * time.Second

// maxUnknown is the largest number of connections in the handshake. When another one arrives, the
// oldest is dropped: idle strangers cannot keep others out, and a genuine caller that was dropped
// calls again.
const maxUnknown = 512

// A Gate listens, admits callers that know the secret, and drops and logs the others. Its fields
// must be set before the first Listen.
type Gate struct {
	Protocol Protocol
	Secret   []byte
	Name     string // name of the listener, for the log
	Logf     func(format string, a ...any)
	Patience time.Duration // 0: the constant
	Config   net.ListenConfig

	// Admit returns an error if a caller that knows the secret is not expected; the caller receives
	// it. A nil Admit admits all. Enter receives the connection of an admitted caller, its claim
	// and the connection's key, and owns them. Both may be called from several goroutines at once,
	// and Enter may take long.
	Admit func(claim []byte) error
	Enter func(c net.Conn, claim, key []byte)
	// Lacking is told why no connection could be accepted for half a second; may be nil.
	Lacking func(error)

	wg        sync.WaitGroup
	mu        sync.Mutex
	listeners []net.Listener
	unknown   []net.Conn // oldest first
	closed    bool
	noted     uint64 // number of problems
}

// Listen listens at an address, "ip:port"; port 0 is any free port. It returns the actual address.
func (g *Gate) Listen(addr string) (netip.AddrPort, error) {
	l, err := g.Config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	g.Serve(l)
	return AddrPort(l.Addr()), nil
}

// Serve accepts connections on a listener, which the gate then owns.
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

// Close stops listening, closes all connections that are not admitted yet, and waits for the gate's
// goroutines. Calls of Enter must end by themselves.
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
	const lacking = 500 * time.Millisecond
	var since time.Time // when connections could not be accepted any more
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // most likely out of file descriptors, which may pass
			g.note("accept: %v", err)
			if since.IsZero() {
				since = time.Now()
			}
			if g.Lacking != nil && time.Since(since) > lacking {
				g.Lacking(fmt.Errorf("accepting a connection: %w", err))
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		since = time.Time{}
		if !g.take(c) {
			c.Close()
			return
		}
		g.wg.Go(func() { g.receive(c) })
	}
}

// take adds c to the unknown connections, and drops the oldest one if there are too many.
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

// release removes c from the unknown connections. It returns false if the gate has already closed
// c.
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
	Welcome(c) // if this fails, the next read from c fails too
	c.SetDeadline(time.Time{})
	g.Enter(c, claim, key)
}

// drop closes a connection. A caller that closed it first is not logged: most likely it was
// admitted at another address.
func (g *Gate) drop(c net.Conn, why error) {
	c.Close()
	if !errors.Is(why, io.EOF) && !errors.Is(why, syscall.ECONNRESET) {
		g.note("dropped a connection from %v: %v", c.RemoteAddr(), why)
	}
}

// note logs the first ten problems, then one each time their number doubles: a flood of strangers
// must not flood the log.
func (g *Gate) note(format string, a ...any) {
	g.mu.Lock()
	g.noted++
	n := g.noted
	g.mu.Unlock()
	if g.Logf != nil && (n <= 10 || bits.OnesCount64(n) == 1) {
		g.Logf("%s: %s (the %d. trouble so far)", g.Name, fmt.Sprintf(format, a...), n)
	}
}
