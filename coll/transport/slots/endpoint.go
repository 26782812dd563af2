package slots

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
)

// An Endpoint is a rank's side of a network. Its methods may be called by many
// goroutines.
type Endpoint struct {
	*rendezvous.Point // where peers find this rank; provides Info, and Reach, which does not know whether devices reach each other

	opt     Options
	network Network
	worker  *worker

	ctx    context.Context // canceled by Close: nothing new begins
	cancel context.CancelFunc
	accept context.Context // canceled when Close no longer waits for connections that peers have begun
	giveUp context.CancelFunc
	dials  sync.WaitGroup // Tx calls
	wg     sync.WaitGroup // watchers, and functions started by Go

	mu     sync.Mutex
	closed bool
	tx     []*Tx
	rx     map[rxKey]*Rx
}

type rxKey struct{ peer, channel int }

var _ transport.Endpoint = (*Endpoint)(nil)

func (o *Options) check() error {
	switch {
	case o.Fault == nil:
		return errors.New("there is no Fault to report to")
	case o.MaxMessage < 0 || o.MaxMessage > MostMessage:
		return fmt.Errorf("messages of %d bytes; want at most %d", o.MaxMessage, MostMessage)
	case o.First < 0:
		return fmt.Errorf("device %d is negative", o.First)
	}
	return nil
}

// Open creates a rank's endpoint. The caller must close it, but not from the Hook of
// Options.Fault. Closing it closes the network, and so does a failed Open.
func Open(n Network, opt Options) (*Endpoint, error) {
	e, err := open(n, opt)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", n, err), n.Close())
	}
	return e, nil
}

func open(n Network, opt Options) (*Endpoint, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	opt.Limit(MostMessage)
	if opt.Timeout <= 0 {
		opt.Timeout = DefaultTimeout
	}
	if opt.Logf == nil {
		opt.Logf = func(string, ...any) {}
	}
	e := &Endpoint{opt: opt, network: n, rx: map[rxKey]*Rx{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.accept, e.giveUp = context.WithCancel(context.Background())
	e.worker = newWorker()
	var err error
	e.Point, err = rendezvous.Listen(rendezvous.Options{
		Rank: opt.Rank, Comm: append([]byte(n.Name()+" "), opt.Comm...), Key: opt.Key, Network: n.Name(), Prefix: n.String(), MaxMessage: opt.MaxMessage,
		Addrs: opt.Addrs, Admit: e.admit, Logf: opt.Logf, Lacking: func(err error) { opt.Fault.Set(fmt.Errorf("%s: %w", n.Name(), err)) },
	})
	if err != nil {
		e.cancel()
		e.giveUp()
		e.worker.end()
		return nil, err
	}
	return e, nil
}

// Name returns the network's name.
func (e *Endpoint) Name() string { return e.network.Name() }

// Tx connects to the peer.
func (e *Endpoint) Tx(ctx context.Context, peer int, data []byte, channel int) (transport.Tx, error) {
	i, err := e.Peer(peer, data)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, net.ErrClosed
	}
	e.dials.Add(1)
	e.mu.Unlock()
	defer e.dials.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()

	c := &Conn{e: e, Peer: peer, Channel: channel, Device: (e.opt.First + channel) % e.network.Devices(), point: i.Addrs, maxMessage: i.MaxMessage}
	t := &Tx{Conn: c, s: e.network.Tx(c)}
	c.end = t.s
	if err := t.s.Connect(ctx); err != nil {
		c.free()
		return nil, fmt.Errorf("%v: rank %d to rank %d, channel %d: %w", e.network, e.opt.Rank, peer, channel, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tx = append(e.tx, t) // also while Close waits for this call
	return t, nil
}

// Rx returns the receiving end of a connection. The peer may open its end earlier or
// later.
func (e *Endpoint) Rx(_ context.Context, peer int, data []byte, channel int) (transport.Rx, error) {
	i, err := e.Peer(peer, data)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, net.ErrClosed
	}
	return e.rxLocked(peer, channel, i.MaxMessage), nil
}

// rxLocked returns the receiving end, which it creates if there is none.
func (e *Endpoint) rxLocked(peer, channel, maxMessage int) *Rx {
	k := rxKey{peer, channel}
	if e.rx[k] == nil {
		c := &Conn{e: e, Peer: peer, Channel: channel, maxMessage: maxMessage}
		r := &Rx{Conn: c, r: e.network.Rx(c)}
		c.end = r.r
		e.rx[k] = r
	}
	return e.rx[k]
}

// admit sets up the receiving end of a connection that a peer dials.
func (e *Endpoint) admit(from rendezvous.Stream, wire net.Conn) {
	peer, channel := from.Peer, from.Channel
	var a ask
	err := e.keep(wire)
	if err == nil {
		a, err = e.readAsk(wire)
	}
	var r *Rx
	if err == nil {
		r, err = e.enter(peer, channel, a, wire)
	}
	if err != nil {
		e.Logf("rank %d, channel %d: %v", peer, channel, err)
		wire.Close()
		return
	}
	err = r.r.Accept(e.accept, a.text)
	if err == nil || e.ctx.Err() != nil { // Close frees it
		return
	}
	if !r.answered {
		_ = r.answer(nil, err) // if the peer has hung up, it does not need the answer
	}
	if !errors.Is(err, ErrVanished) {
		e.opt.Fault.Set(fmt.Errorf("receiving from rank %d: %w", peer, err))
	}
	r.free()
}

// askPatience is how long the receiver waits for the sender's ask.
const askPatience = 10 * time.Second

func (e *Endpoint) readAsk(wire net.Conn) (ask, error) {
	wire.SetReadDeadline(time.Now().Add(askPatience))
	stop := context.AfterFunc(e.ctx, func() { wire.Close() })
	defer stop()
	a, err := readAsk(wire)
	wire.SetReadDeadline(time.Time{})
	return a, err
}

// enter assigns a TCP connection to its receiving end.
func (e *Endpoint) enter(peer, channel int, a ask, wire net.Conn) (*Rx, error) {
	if a.maxMessage == 0 || a.maxMessage > uint32(e.opt.MaxMessage) {
		return nil, fmt.Errorf("it asks for messages of %d bytes; they are at most %d", a.maxMessage, e.opt.MaxMessage)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, net.ErrClosed
	}
	r := e.rxLocked(peer, channel, int(a.maxMessage))
	r.Lock()
	defer r.Unlock()
	if r.wire != nil {
		return nil, errors.New("it dials twice")
	}
	r.wire, r.maxMessage, r.Device = wire, int(a.maxMessage), int(a.device)%e.network.Devices()
	return r, nil
}

// Logf logs a line about the network.
func (e *Endpoint) Logf(format string, args ...any) {
	e.opt.Logf("%v: %s", e.network, fmt.Sprintf(format, args...))
}

// Ends appends all ends of connections to list.
func (e *Endpoint) Ends(list []End) []End {
	for _, c := range e.conns() {
		list = append(list, c.end)
	}
	return list
}

// Go runs f until done is closed, which happens when the endpoint begins to close. Close
// waits for f to return.
func (e *Endpoint) Go(f func(done <-chan struct{})) { e.wg.Go(func() { f(e.ctx.Done()) }) }

func (e *Endpoint) conns() (list []*Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tx {
		list = append(list, t.Conn)
	}
	for _, r := range e.rx {
		list = append(list, r.Conn)
	}
	return list
}

// How long Close waits for goodbyes: a live peer answers within a millisecond. After a
// fault the peer may be one that does not.
const (
	goodbyePatience = 5 * time.Second
	acceptPatience  = time.Second // for connections that have just begun
	faultPatience   = time.Second
)

// Close tells peers that this rank leaves, and frees everything. Messages that were sent
// (Idle) still arrive. A goroutine that uses a connection at that moment sees it silent.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.cancel()
	e.mu.Unlock()
	// A peer that is connecting does not know that this endpoint is closing.
	late := time.AfterFunc(acceptPatience, e.giveUp)
	e.dials.Wait()
	e.Point.Close()
	late.Stop()
	e.giveUp()

	patience := goodbyePatience
	if e.opt.Fault.Err() != nil {
		patience = faultPatience
	}
	all := e.conns()
	e.leave(all, patience)
	e.worker.end()
	for _, c := range all {
		c.free()
	}
	e.wg.Wait()
	return e.network.Close()
}

// leave says goodbye on all connections. It gives up after patience.
func (e *Endpoint) leave(all []*Conn, patience time.Duration) {
	ends := make(chan *Conn, len(all))
	left := map[*Conn]bool{}
	for _, c := range all {
		c.Lock()
		c.Closed = true
		c.Unlock()
		left[c] = true
		e.worker.add(func() bool {
			done := c.settle()
			if done {
				ends <- c
			}
			return done
		})
	}
	late := time.After(patience)
	for len(left) > 0 {
		select {
		case c := <-ends:
			delete(left, c)
		case <-late:
			for c := range left {
				e.Logf("rank %d does not answer the goodbye within %v", c.Peer, patience)
			}
			return
		}
	}
}
