// Package socket is the transport over TCP.
//
// A connection is one or several TCP streams, opened by the sender. The executor drives
// them: a small message is one write by Commit or Post and one read by Peek or Done,
// without a goroutine in between. Large messages go directly from the sending caller's
// memory to the receiving caller's memory. They are cut into pieces, each of which goes
// to a stream with free buffer space, over several interfaces where there are several.
// With Options.Threads, additional goroutines move those pieces; the executor still moves
// small messages.
//
// A receiver reads only what its caller requests, so that TCP's own window is the back
// pressure; in addition, a sender buffers up to Slots messages.
//
// A rendezvous.Point sets up the streams: both sides prove that they have Options.Key.
// Dead peers are detected by the kernel (reset, end of stream, keep-alive) and by a
// watcher (watch.go), which checks for conditions that the kernel reports only after
// minutes.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-hpc/assay/coll/transport"
	"github.com/assay-hpc/assay/coll/transport/rendezvous"
)

// Limits of NCCL for NCCL_SOCKET_NTHREADS and its product with
// NCCL_NSOCKS_PERTHREAD.
const (
	MaxThreads = 16
	MaxStreams = 64
)

// Defaults of Options.
const (
	DefaultMaxMessage = 512 << 10
	DefaultTimeout    = 30 * time.Second
)

const (
	slots = 8

	// small is the size up to which a message is copied next to its header, so that it is
	// one write, and is taken from the read-ahead, so that it is one read: copying this
	// much costs no more than a second system call.
	small = 32 << 10
	// minPiece is the smallest piece that a message is cut into.
	minPiece = 64 << 10
	// aheadSize is the most that one read for small messages may take.
	aheadSize = 128 << 10
)

// Options configure an Endpoint. Rank, Key and Fault must be given.
type Options struct {
	Rank  int    // of this process in the communicator
	Comm  []byte // identifies the communicator; connections from other communicators are rejected as strangers
	Key   []byte // secret of the communicator, 16 bytes or more
	Fault *transport.Fault

	// Addrs are this host's addresses to use, of one or several interfaces: streams are
	// spread over them. Link-local addresses need their zone. None means the loopback
	// address.
	Addrs []netip.Addr

	// Threads is the number of additional goroutines that move the pieces of large
	// messages of a connection, and PerThread the number of streams of each:
	// NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD. If Threads is 0, the caller drives
	// PerThread streams (0: one for each address).
	Threads, PerThread int

	MaxMessage int           // bytes; two peers use the smaller of their values
	Timeout    time.Duration // how long a peer may leave data unacknowledged

	Logf func(format string, args ...any) // logs strangers and fallbacks; may be nil
}

func (o *Options) check() error {
	switch {
	case o.Fault == nil:
		return errors.New("socket: there is no Fault to report to")
	case o.Threads < 0 || o.Threads > MaxThreads:
		return fmt.Errorf("socket: %d threads; want 0 to %d", o.Threads, MaxThreads)
	case o.PerThread < 0 || max(o.Threads, 1)*o.PerThread > MaxStreams:
		return fmt.Errorf("socket: %d threads with %d sockets each; want at most %d sockets", o.Threads, o.PerThread, MaxStreams)
	case o.MaxMessage < 0 || o.MaxMessage > 1<<30:
		return fmt.Errorf("socket: messages of %d bytes; want at most %d", o.MaxMessage, 1<<30)
	}
	return nil
}

func (o *Options) setDefaults() {
	if o.PerThread == 0 {
		o.PerThread = 1
		if o.Threads == 0 {
			o.PerThread = min(max(len(o.Addrs), 1), MaxStreams)
		}
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = DefaultMaxMessage
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
}

// streams returns the number of TCP streams of a connection. Helpers own all of them
// except the first, which carries small messages.
func (o *Options) streams() int {
	if o.Threads == 0 {
		return o.PerThread
	}
	return 1 + o.Threads*o.PerThread
}

// An Endpoint is a rank's side of the socket transport. Its methods may be
// called by many goroutines.
type Endpoint struct {
	*rendezvous.Point // where peers find it: Info and Reach

	opt   Options
	epoll int
	wake  int // eventfd with which helpers wake the goroutine that polls Fd

	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the watcher

	mu     sync.Mutex
	closed bool
	tx     []*Tx
	rx     map[rxKey]*Rx
}

type rxKey struct{ peer, channel int }

var _ transport.Endpoint = (*Endpoint)(nil)

// Open listens on the addresses of opt. The caller must close the endpoint, but not from
// the Hook of Options.Fault.
func Open(opt Options) (*Endpoint, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	opt.setDefaults()
	e := &Endpoint{opt: opt, epoll: -1, wake: -1, rx: map[rxKey]*Rx{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if err := e.open(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Endpoint) open() (err error) {
	if e.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("socket: epoll: %w", err)
	}
	if e.opt.Threads > 0 {
		if e.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
			return fmt.Errorf("socket: eventfd: %w", err)
		}
		if err := epollAdd(e.epoll, e.wake, unix.EPOLLIN); err != nil {
			return fmt.Errorf("socket: epoll: %w", err)
		}
	}
	e.Point, err = rendezvous.Listen(rendezvous.Options{
		Rank: e.opt.Rank, Comm: append([]byte("socket "), e.opt.Comm...), Key: e.opt.Key, Network: e.Name(), Prefix: "socket", MaxMessage: e.opt.MaxMessage,
		Addrs: e.opt.Addrs, Admit: e.admit, Logf: e.opt.Logf, Lacking: func(err error) { e.opt.Fault.Set(fmt.Errorf("socket: %w", err)) },
	})
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	e.wg.Go(e.watch)
	return nil
}

// Name returns NCCL's name for the transport.
func (e *Endpoint) Name() string { return "Socket" }

// Rx returns the receiving end of a connection. The peer opens its sockets, earlier or
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
	r := e.rxLocked(rxKey{peer, channel})
	r.mu.Lock()
	r.maxMessage = i.MaxMessage
	r.mu.Unlock()
	return r, nil
}

// rxLocked returns the receiving end with the given key, which it creates if there is
// none.
func (e *Endpoint) rxLocked(k rxKey) *Rx {
	r := e.rx[k]
	if r == nil {
		r = &Rx{conn: conn{e: e, peer: k.peer}}
		e.rx[k] = r
	}
	return r
}

// Fd returns an epoll descriptor that becomes readable when a connection may make
// progress: on new data, free buffer space, or the end of a stream. It is edge triggered.
// A caller that has found nothing to do on all its connections polls it, then calls
// Drain, and then tries its connections again.
func (e *Endpoint) Fd() int { return e.epoll }

// Drain makes Fd unreadable until something new happens. It does not
// allocate.
func (e *Endpoint) Drain() {
	var ev [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(e.epoll, ev[:], 0)
		if n < len(ev) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Close tells peers that this rank leaves, and frees all sockets. Messages that are no
// longer in posted memory (Idle) still arrive. A goroutine that uses a connection at that
// moment sees it silent; memory is not touched after Close.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.cancel()
	tx, rx := e.tx, e.rx
	e.mu.Unlock()

	if e.Point != nil {
		e.Point.Close()
	}
	for _, t := range tx {
		t.close()
	}
	for _, r := range rx {
		r.close()
	}
	e.wg.Wait()
	for _, fd := range []int{e.epoll, e.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return nil
}
