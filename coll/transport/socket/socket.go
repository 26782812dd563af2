// Package socket is the transport over TCP.
//
// A connection is one or several TCP streams, opened by the sender. The
// executor drives them: a small message is one write by Commit or Post and
// one read by Peek or Done, with no goroutine between. Large messages go from
// the caller's memory into the caller's memory, cut into pieces that are
// dealt to whichever stream has room, over several interfaces where there are
// several. With Options.Threads, goroutines beside the executor move those
// pieces; the executor keeps what is small.
//
// A receiver takes nothing but what it is asked for, so that TCP's own window
// is the back pressure; on top of it a sender keeps up to Slots messages.
//
// Streams are brought together by a rendezvous.Point: both sides prove that they
// have Options.Key. What dies is found by the kernel (reset, end of stream,
// keep-alive) and by a watcher (watch.go) that asks for what the kernel would
// report after minutes only.
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

	// small is the size up to which a message is copied next to its header,
	// to be one write, and taken out of the read-ahead, to be one read:
	// copying this much costs no more than a second system call.
	small = 32 << 10
	// minPiece is the smallest piece that a message is cut into.
	minPiece = 64 << 10
	// aheadSize is how much a read for small messages may take at once.
	aheadSize = 128 << 10
)

// Options say how an Endpoint is to be. Rank, Key and Fault must be given.
type Options struct {
	Rank  int    // of this process in the communicator
	Comm  []byte // names the communicator: those of another one are strangers
	Key   []byte // secret of the communicator, 16 bytes or more
	Fault *transport.Fault

	// Addrs are this host's addresses to use, of one or several interfaces:
	// streams are spread over them. Link-local ones need their zone. None
	// means the loopback address.
	Addrs []netip.Addr

	// Threads is the number of goroutines beside the caller that move the
	// pieces of large messages of a connection, and PerThread the streams of
	// each: NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD. Where Threads is 0
	// the caller drives PerThread streams (0: one for each address).
	Threads, PerThread int

	MaxMessage int           // bytes; the smaller one of two peers' holds
	Timeout    time.Duration // how long a peer may leave data unacknowledged

	SendBuffer, RecvBuffer int // bytes of the kernel's buffers; 0 leaves them to the kernel

	Logf func(format string, args ...any) // strangers and fallbacks; may be nil
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

// streams is how many TCP streams a connection has. With helpers they have
// all but the first one, which carries small messages.
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
	wake  int // eventfd by which helpers wake what polls Fd

	ctx    context.Context // done by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the watcher

	mu     sync.Mutex
	closed bool
	tx     []*Tx
	rx     map[rxKey]*Rx
}

type rxKey struct{ peer, channel int }

var _ transport.Endpoint = (*Endpoint)(nil)

// Open listens on the addresses of opt. The endpoint is to be closed; what
// Options.Fault calls as its Hook must not do it.
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
		Addrs: e.opt.Addrs, Admit: e.admit, Control: e.control, Logf: e.opt.Logf,
	})
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	e.wg.Go(e.watch)
	return nil
}

// Name is NCCL's word for it.
func (e *Endpoint) Name() string { return "Socket" }

// Rx returns the receiving end of a connection. Its sockets are the ones that
// the peer opens, whenever it does.
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

// rxLocked finds or makes the receiving end that a key names.
func (e *Endpoint) rxLocked(k rxKey) *Rx {
	r := e.rx[k]
	if r == nil {
		r = &Rx{conn: conn{e: e, peer: k.peer}}
		e.rx[k] = r
	}
	return r
}

// Fd is an epoll descriptor that becomes readable when a connection may go
// on: data or room came, or an end. It is edge triggered. Who has found
// nothing to do on all its connections polls it, then calls Drain, and then
// tries its connections again.
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

// Close tells peers that this rank leaves, and frees all sockets. Messages
// that have left their memory (Idle) arrive still. Those who use a connection
// at the moment see it silent; memory is not touched after Close.
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
